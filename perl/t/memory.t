# A message that does not fit into the memory that the process may have: an exception, and the process
# goes on.
use strict;
use warnings;
use File::Temp qw(tempdir);
use POSIX ();
use Test::More;
use Pipework::Atomic;
use Pipework::ReqRep;

alarm 120;
my $folder = tempdir(CLEANUP => 1);
my $large  = 100 << 20;
# A thread takes address space, which the limits here do not allow for.
$ENV{PIPEWORK_DEATH_THREAD} = 'off';
my @perl   = ($^X, '-w', map { "-I$_" } @INC);

# Runs a program in a new process with a limit on memory; returns a function that returns its output.
sub with_memory {
    my ($mib, $in, $program) = @_;
    my $out = "$folder/out";
    defined(my $pid = fork) or die "fork: $!";
    if (!$pid) {
        open STDIN, '<&', $in or die $! if $in;
        open STDOUT, '>', $out or die $!;
        exec 'sh', '-c', 'ulimit -v "$1" && shift && exec "$@"', 'sh', $mib << 10, @perl,
            '-e', $program, $folder
            or POSIX::_exit(9);
    }
    return sub {
        waitpid $pid, 0;
        is($?, 0, 'it has lived');
        open my $read, '<', $out or die $!;
        local $/;
        return readline $read;
    };
}

subtest 'a response' => sub {
    my $srv    = Pipework::ReqRep->new("$folder/rr", 1, 1, $large);
    my $result = with_memory(265, undef, <<'PROGRAM');
        use Pipework::ReqRep;
        my $cli = Pipework::ReqRep::Client->new("$ARGV[0]/rr");
        print eval { $cli->req('much'); 1 } ? 'it fits; ' : $@ =~ s/ for \d+ bytes at .*\n/; /r;
        print $cli->req('little');
PROGRAM
    for my $len ($large, 6) {
        my (undef, $id) = $srv->recv_wait(30);
        $srv->reply($id, 'x' x $len);
    }
    is($result->(), 'Out of memory; xxxxxx', 'an exception, and the next one');
};

subtest 'a message' => sub {
    my ($r, $w) = Pipework::Atomic->pair;
    my $result = with_memory(165, $r->rh, <<'PROGRAM');
        use Pipework::Atomic;
        my $r = Pipework::Atomic->from_fh('<&', \*STDIN);
        print eval { $r->read_message; 1 } ? 'it fits; ' : $@ =~ s/ for \d+ bytes at .*\n/; /r;
        print $r->read_message;
PROGRAM
    $r->close;
    $w->write_message('x' x $_) for $large, 6;
    is($result->(), 'Out of memory; xxxxxx', 'an exception, and the next one');
};

subtest 'a file' => sub {
    open my $file, '+>', "$folder/file" or die $!;
    truncate $file, $large;
    my $result = with_memory(165, $file, <<'PROGRAM');
        use Pipework::FD;
        print eval { Pipework::FD::slurp(0); 1 } ? 'it fits; ' : $@ =~ s/ for \d+ bytes at .*\n/; /r;
        Pipework::FD::sysseek(0, 0, 0);
        Pipework::FD::sysread(0, my $bytes, 6);
        print length $bytes;
PROGRAM
    is($result->(), 'Out of memory; 6', 'an exception, and a part of it');
};

done_testing;
