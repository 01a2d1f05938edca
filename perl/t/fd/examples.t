# The examples of eg/ do what they say.
use strict;
use warnings;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use FindBin ();
use lib "$FindBin::Bin/..";
use Loopback;
use Socket;
use Test::More;
use Pipework::FD;

plan skip_all => no_loopback() if no_loopback();
$SIG{ALRM} = sub { die "too slow\n" };    # so that END ends the server
alarm 120;
my $eg     = dirname(dirname(dirname(abs_path(__FILE__)))) . '/eg';
my @perl   = ($^X, '-w', map { "-I$_" } grep { !ref } @INC);
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
done_testing;
