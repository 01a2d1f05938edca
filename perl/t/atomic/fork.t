# Children: writers of their own, inherited readers, and bytes that were pending in the parent.
use strict;
use warnings;
use Test::More;
use FindBin ();
use lib "$FindBin::Bin/..";
use Processes;
use POSIX ();
use Pipework::Atomic;

alarm 120;

my $class = 'Pipework::Atomic';
my $long = 'x' x 300_000;

subtest 'messages of ten children arrive in the order of each writer' => sub {
    my ($r, $w) = $class->pair;
    my %expected;
    my @pids = map {
        my $letter = chr 96 + $_;
        my $pid = child {
            $r->close;
            $w->write_message("$letter$_" . $letter x (1000 * $_)) for 1 .. 20;
            0;
        };
        $expected{$letter} = $pid;
        $pid;
    } 1 .. 10;
    $w->close;
    my (%next, $wrong);
    my $count = 0;
    while (my $found = $r->read_message(debug => 1)) {
        my ($letter, $number, $rest) = $found->{message} =~ /\A(.)(\d+)(.*)\z/s;
        $wrong++ if $number != ++$next{$letter} || $rest ne $letter x (1000 * $number);
        $wrong++ if $found->{pid} != $expected{$letter};
        $count++;
    }
    is($count, 200, 'all messages');
    is($wrong, undef, 'whole, in the order of their writer, under its number');
    is(status($_), 0, 'a child') for @pids;
};

subtest 'a child has a key of its own' => sub {
    my ($r, $w) = $class->pair;
    my $key = $w->key;
    my $pid = child { $w->write_message($w->key); 0 };
    my $its = $r->read_message;
    isnt($its, $key, 'a child has its own');
    like($its, qr/^$pid:/, 'with its number');
    is($w->key, $key, 'the parent keeps its own');
    status($pid);
};

subtest 'only the parent writes what was pending before fork' => sub {
    for my $how (qw(undef exit _exit close write)) {
        my ($r, $w) = $class->pair;
        $w->blocking(0);
        $w->write_message($long);
        is($w->pending_output, 1, 'something is pending');
        my $pid = fork // die;
        if (!$pid) {
            POSIX::_exit(3) if $w->pending_output;
            $w->DESTROY if $how eq 'undef';
            $w->close if $how eq 'close';
            if ($how eq 'write') { $w->blocking(1); $w->write_message('of the child') }
            POSIX::_exit(0) if $how ne 'exit';
            # Objects are destroyed as when a program ends, but the tests' own report is not.
            Test::More->builder->no_ending(1);
            exit 0;
        }
        $r->blocking(0);
        my @found;
        for (1 .. 2000) {
            push @found, $r->read_message;
            $w->flush;
            last if @found == 1 + ($how eq 'write');
            select undef, undef, undef, 0.005;
        }
        is(status($pid), 0, "a child: $how");
        my @lengths = sort { $a <=> $b } map { length } @found;
        is_deeply(\@lengths, [$how eq 'write' ? 12 : (), 300_000], 'it comes once');
    }
};

subtest 'a child reads only if the parent had nothing buffered' => sub {
    my ($r, $w) = $class->pair;
    $w->write_message($_) for 'first', 'second';
    my $pid = child { $w->close; $r->read_message eq 'first' ? 0 : 1 };
    is(status($pid), 0, 'nothing was read ahead: it reads');
    ($r, $w) = $class->pair;
    $w->write_message($_) for 'first', 'second';
    is($r->read_message, 'first', 'the parent has read both');
    $pid = child {
        my $ok = !eval { $r->read_message; 1 } && $! == POSIX::ESTALE();
        return $ok && ref $@ eq 'Pipework::Error' && $@->kind eq 'Stale' ? 0 : 1;
    };
    is(status($pid), 0, 'ESTALE in the child');
    is($r->read_message, 'second', 'the parent goes on');
};

subtest 'on_torn reports the message of a killed child' => sub {
    my ($r, $w) = $class->pair;
    $w->blocking(0);
    my $pid = child {
        $w->blocking(0);
        $w->write_message($long);
        kill KILL => $$;
        sleep 10;
    };
    waitpid $pid, 0;
    my @reports;
    $r->{on_torn} = sub { push @reports, @_ };
    $r->blocking(0);
    is_deeply([$r->read_message], [], 'nothing whole');
    $w->write_message('after');
    is($r->read_message, 'after', 'others go on');
    $w->close;
    is_deeply([$r->read_message], [], 'the end');
    is(@reports, 1, 'its message is reported');
    like($reports[0]{writer}, qr/^$pid:/, 'as its');
    is($reports[0]{kind}, 'Torn', 'the kind');
    cmp_ok($reports[0]{bytes}, '<', 65_536, 'what had come');
};

subtest 'exec closes the ends' => sub {
    my ($r, $w) = $class->pair;
    $w->blocking(0);
    $w->write_message($long);
    my $pid = fork // die;
    if (!$pid) { exec '/bin/true' or POSIX::_exit(9) }
    is(status($pid), 0, 'a child');
    $r->blocking(0);
    my @found;
    for (1 .. 100) { push @found, $r->read_message; last if @found; $w->flush }
    is(length $found[0], 300_000, 'the parent\'s message is whole');
    $w->close;
    is($r->eof, 1, 'no process holds the pipe');
};

done_testing;
