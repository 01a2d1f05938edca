#!/usr/bin/env perl
# A server and a client in event loops: each waits for its doorbell together with other things. Here
# the loop is select; the descriptor of a doorbell fits into any other.
#
#   perl eg/reqrep-loop.pl [COUNT]
use strict;
use warnings;
use IO::Select;
use Pipework::ReqRep;

my $count = shift // 10;
my $path  = "/dev/shm/reqrep-loop.$$";
my $srv   = Pipework::ReqRep->create(path => $path, slots => 4);

my $server = fork // die "fork: $!\n";
if (!$server) {
    my $bell = $srv->doorbell;
    my $loop = IO::Select->new($bell);
    my $served = 0;
    while ($served < $count) {
        if (!$loop->can_read(1)) { print "the server has nothing to do\n"; next }
        while (my ($request, $id) = $srv->recv) {
            $srv->reply($id, scalar reverse $request);
            $served++;
        }
    }
    exit;
}

my $cli  = Pipework::ReqRep::Client->open(path => $path);
my $loop = IO::Select->new(my $responses = $cli->doorbell, my $space = $cli->send_doorbell);
my ($sent, %waiting) = (0);
while ($sent < $count || %waiting) {
    for my $bell ($loop->can_read(10)) {
        if ($bell == $space) {
            while ($sent < $count && defined(my $id = $cli->send("request $sent"))) {
                $waiting{$id} = $sent++;
            }
            # A doorbell for sending is readable while there is space, which is no news from now on.
            $loop->remove($space) if $sent == $count;
            next;
        }
        for my $id (keys %waiting) {
            my $response = $cli->get($id) // next;
            print "$waiting{$id}: $response\n";
            delete $waiting{$id};
        }
    }
}
waitpid $server, 0;
$srv->unlink;
