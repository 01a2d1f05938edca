# A live exchange with the command `pipework`, both ways.
use strict;
use warnings;
use Test::More;
use File::Temp qw(tempdir);
use FindBin ();
use lib "$FindBin::Bin/..";
use Checkout;
use Processes;
use POSIX ();
use Pipework::Atomic;

alarm 120;

my $target = built() // plan skip_all => 'the command pipework is in the repository';
my ($command) = grep { -x } map { "$target/$_/pipework" } qw(release debug);
plan skip_all => 'the command pipework is not built: cargo build --package pipework-cli'
    if !$command;

my $class = 'Pipework::Atomic';
my $dir = tempdir(CLEANUP => 1);
my $json = '{"event":"login","user":"somebody","ok":true}';

sub file {
    my ($name, $bytes) = @_;
    open my $fh, '>:raw', "$dir/$name" or die;
    print $fh $bytes;
    close $fh;
    return "$dir/$name";
}
my $dictionary = file(dictionary => $json x 3);

# Starts the command with an end of the pipe as its standard input or output.
sub start {
    my ($stream, $handle, @arguments) = @_;
    my $pid = fork // die;
    return $pid if $pid;
    my ($mode, $number) = $stream eq 'in' ? ('<&', 0) : ('>&', 1);
    POSIX::dup2(fileno $handle, $number) // die;
    exec $command, @arguments or POSIX::_exit(9);
}

my %ways = (
    plain => [[], []],
    zstd => [[compression => 'zstd'], ['--zstd']],
    'a dictionary' => [
        [compression => 'zstd', compression_dictionary_file => $dictionary],
        ['--zstd', '--dictionary', $dictionary]
    ],
);

for my $way (sort keys %ways) {
    my ($ours, $theirs) = @{$ways{$way}};
    subtest "$way: from the command" => sub {
        my ($r, $w) = $class->pair(@$ours);
        my $big = file(big => join '', map { "$_ " } 1 .. 50_000);
        my @pids = map { start(out => $w->wh, 'send', @$theirs, "$json$_", 'second') } 1 .. 3;
        push @pids, start(out => $w->wh, 'send', @$theirs, '--files', $big);
        $w->close;
        my %count;
        while (defined(my $message = $r->read_message)) {
            $count{length $message > 100 ? length $message : $message}++;
        }
        waitpid $_, 0 for @pids;
        is_deeply(\%count, {(map { ("$json$_" => 1) } 1 .. 3), second => 3, -s $big => 1}, 'whole messages');
    };
    subtest "$way: to the command" => sub {
        my ($r, $w) = $class->pair(@$ours);
        open my $out, '+>', "$dir/out" or die;
        my $pid = fork // die;
        if (!$pid) {
            POSIX::dup2(fileno $out, 1);
            exec {$command} $command, 'recv', (grep { $_ ne '--zstd' } @$theirs),
                (@$theirs ? '--zstd' : ()), '--lines', '--from',
                '/dev/fd/' . POSIX::dup(fileno $r->rh)
                or POSIX::_exit(9);
        }
        $r->close;
        my @writers = map {
            my $number = $_;
            my $child = child {
                $w->write_message("$number:$_:" . $number x 20_000) for 1 .. 5;
                0;
            };
            $child;
        } 1 .. 5;
        waitpid $_, 0 for @writers;
        $w->write_message($json);
        $w->close;
        is(status($pid), 0, 'its status');
        seek $out, 0, 0;
        chomp(my @lines = <$out>);
        is(pop @lines, $json, 'the last one');
        my @wanted = map {
            my $n = $_;
            map { "$n:$_:" . $n x 20_000 } 1 .. 5
        } 1 .. 5;
        ok("@{[sort @lines]}" eq "@{[sort @wanted]}", 'all the others, whole');
    };
}

subtest 'mixed, a dictionary: ten writers of both kinds' => sub {
    my ($ours, $theirs) = @{$ways{'a dictionary'}};
    my ($r, $w) = $class->pair(@$ours, mixed_data_mode => 1);
    my $long = file(long => $json x 2000);
    my @pids;
    for my $number (1 .. 5) {
        push @pids, start(out => $w->wh, 'send', '--mixed', @$theirs, '--files', ($long) x 10);
        my $pid = child {
            $r->close;
            for (1 .. 10) {
                syswrite $w->wh, "line $number\n";
                $w->write_message($json x 2000);
                $w->write_burst("burst $number");
            }
            0;
        };
        push @pids, $pid;
    }
    $w->close;
    $r->blocking(1);
    my (%count, $wrong);
    while (my ($type, $data) = $r->get_line_burst_or_data) {
        $count{$type}++;
        $wrong++
            if $type eq 'message' ? $data ne $json x 2000 : $data !~ /\A(?:line|burst) \d\n?\z/;
    }
    waitpid $_, 0 for @pids;
    is_deeply(\%count, {message => 100, line => 50, burst => 50}, 'all of it');
    is($wrong, undef, 'whole');
};

subtest 'mixed: from the command' => sub {
    my ($r, $w) = $class->pair(mixed_data_mode => 1);
    my $pid = fork // die;
    if (!$pid) {
        POSIX::dup2(fileno $w->wh, 1);
        exec '/bin/sh', '-c',
            'echo begin; "$0" send --mixed data; "$0" send --mixed --burst b; printf end', $command
            or POSIX::_exit(9);
    }
    $w->close;
    waitpid $pid, 0;
    my @found;
    until ($r->eof) {
        while (my @item = $r->get_line_burst_or_data) { push @found, "@item" }
    }
    is_deeply(\@found, ["line begin\n", 'message data', 'burst b', 'line end'], 'lines, bursts, messages');
};

subtest 'mixed: to the command' => sub {
    my ($r, $w) = $class->pair(mixed_data_mode => 1);
    syswrite $w->wh, "text\n";
    $w->write_message('x' x 5000);
    $w->write_burst('burst');
    my $key = $w->key;
    $w->close;
    open my $in, '<&', $r->rh or die;
    my $pid = open(my $out, '-|') // die;

    if (!$pid) {
        POSIX::dup2(fileno $in, 0);
        exec $command, 'recv', '--mixed', '--json' or POSIX::_exit(9);
    }
    require JSON::PP;
    my @found = map { JSON::PP::decode_json($_) } <$out>;
    close $out;
    is_deeply([map { $_->{type} } @found], [qw(line message burst)], 'what came');
    is_deeply([@{$found[1]}{qw(writer parts data)}], [$key, 2, 'x' x 5000], 'the message');
};

done_testing;
