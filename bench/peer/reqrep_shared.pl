# Calls through Data::ReqRep::Shared, from this process to a forked server that sends every request back.
#
# perl reqrep_shared.pl CALLS BYTES. Prints one line of four numbers: bytes that came back, seconds on the clock, CPU seconds of the client,
# CPU seconds of the server. The calls made to warm up are in the server's share of CPU only.
use strict;
use warnings;
use Data::ReqRep::Shared;
use Time::HiRes qw(time);

my ($calls, $bytes) = @ARGV;
my $warm = int($calls / 20);
my $max = $bytes < 64 ? 64 : $bytes;
my $server = Data::ReqRep::Shared->new_memfd('bench', 64, 64, $max, 64 * $max);

my $pid = fork() // die "fork: $!";
if (!$pid) {
    for (1 .. $warm + $calls) {
        my ($request, $id) = $server->recv_wait;
        $server->reply($id, $request);
    }
    exit 0;
}

my $client = Data::ReqRep::Shared::Client->new_from_fd($server->memfd);
my $request = 'x' x $bytes;
$client->req($request) for 1 .. $warm;
my ($user, $system) = times;
my $start = time;
my $back = 0;
$back += length $client->req($request) for 1 .. $calls;
my $seconds = time - $start;
my ($user_end, $system_end) = times;
waitpid $pid, 0;
my (undef, undef, $child_user, $child_system) = times;
printf "%d %.6f %.6f %.6f\n", $back, $seconds, $user_end + $system_end - $user - $system, $child_user + $child_system;
