# The programs of eg/ work as they say.
use strict;
use warnings;
use FindBin ();
use lib $FindBin::Bin;
use Checkout;
use Loopback;
use Processes;
use Socket;
use Test::More;
use Pipework::FD;

alarm 120;
my $eg = root() . '/eg';

# The output of a program of eg/.
sub output {
    my ($program, @arguments) = @_;
    my $text = output_of('.', '-w', "$eg/$program", @arguments);
    is($?, 0, "$program: its status");
    return $text;
}

my $workers = output('atomic-workers.pl', "$eg/atomic-workers.pl", "$eg/atomic-output.pl");
like($workers, qr/^\Q$eg\E\/atomic-workers\.pl: \d\d+ words$/m, 'each file');
like($workers, qr/^\Q$eg\E\/atomic-output\.pl: \d\d+ words$/m, 'each file');
is(output('atomic-output.pl'), <<'TEXT', 'lines, bursts and messages');
  1 starting
    progress: 1 of 3
    a message of 8892 bytes
  2 step 1 is done
    progress: 2 of 3
    a message of 18892 bytes
  3 step 2 is done
    progress: 3 of 3
    a message of 28892 bytes
  4 step 3 is done
TEXT
is(output('atomic-output.pl', 'echo', 'only text'), "  1 only text\n", 'any program');

my $called = output('tool-server.pl');
like($called, qr/\A2 \+ 40 = 42\nthis folder: [1-9]\d* KiB\nrefused: no second number\n/, 'answers');
my $debug = 'DEBUG: in add(), and this line was to be removed';
like($called, qr/^\Q$debug\E\nprogress: looking at \.\n\Q$debug\E\n\z/m, 'beside what was printed');

sub lines { return [sort split /(?<=\n)/, output(@_)] }

is_deeply(lines('reqrep-prefork.pl', '1 + 1', 'die "no\n"', 'kill 9, $$', 'uc "text"'), [
    "1 + 1: 2\n",
    "die \"no\\n\": failed: no\n",
    "kill 9, \$\$: failed: Connection reset by peer\n",
    "uc \"text\": TEXT\n",
], 'a process for each request');
is_deeply(lines('reqrep-loop.pl', 9), [map { "$_: $_ tseuqer\n" } 0 .. 8], 'event loops');

my $jobs = output('job-runner.pl');
like($jobs, qr/^\[echo job 2; exit 3\] exit status 3\njob 2$/m, 'a job that fails');
like($jobs, qr/^\[echo job 3; kill -9 \$\$\] killed by signal 9\njob 3$/m, 'a job that is killed');
is_deeply([sort map { s/.*: //r } @{lines('queue-workers.pl')}], ["docs\n", "lint\n", "test\n"], 'each job once');
is_deeply([map { s/\d+/N/r } @{lines('web-workers.pl')}], [("process N: 3 words\n") x 8], 'one model');

SKIP: {
    skip no_loopback(), 1 if no_loopback();
    $SIG{ALRM} = sub { die "too slow\n" };    # so that END ends the server
    my @perl = ($^X, '-w', map { "-I$_" } grep { !ref } @INC);
    my $server = open(my $output, '-|', @perl, "$eg/fd_echo.pl", 0) // die $!;
    # The handle is named, for it would wait for the server before.
    END { local $?; kill KILL => $server and close $output if $server }
    my ($port) = readline($output) =~ /^port (\d+)$/;
    ok($port, 'the echo server listens');
    my @clients = map {
        Pipework::FD::socket(my $fd, AF_INET, SOCK_STREAM, 0) // die $!;
        Pipework::FD::connect($fd, pack_sockaddr_in($port, INADDR_LOOPBACK)) // die $!;
        $fd;
    } 1 .. 20;
    is(Pipework::FD::write_all($clients[$_], "from $_" x 1000, 5), length("from $_") * 1000,
        "client $_ writes")
        for 0 .. 19;
    for (0 .. 19) {
        is(Pipework::FD::read_full($clients[$_], my $got, length("from $_") * 1000, 5),
            length("from $_") * 1000, "client $_ reads");
        is($got, "from $_" x 1000, 'what it has written');
    }
    Pipework::FD::close($_) for @clients[0 .. 18];
    is(Pipework::FD::write_all($clients[19], 'still there?', 5), 12, 'the others have left');
    is(Pipework::FD::read_full($clients[19], my $got, 12, 5), 12, 'and the server is there');
}
done_testing;
