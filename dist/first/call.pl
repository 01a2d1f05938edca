# A message through a pipe, and a call that a child answers.
use strict;
use warnings;

use Pipework::Atomic;
use Pipework::ReqRep;

$| = 1;
my ($reader, $writer) = Pipework::Atomic->pair;
$writer->write_message('whole');
print $reader->read_message, "\n";

my $server = Pipework::ReqRep->new(undef, 64, 8, 4096);
my $child = fork // die "fork: $!";
if (!$child) {
    my ($request, $id) = $server->recv_wait(5);
    $server->reply($id, uc $request);
    exit;
}
my $client = Pipework::ReqRep::Client->new_from_fd($server->memfd);
print $client->req('hello') // die(Pipework::error()), "\n";
waitpid $child, 0;
