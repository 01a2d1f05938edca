# The other end of languages.test.mjs in Perl: opens PATH, serve PATH, call PATH or echo.
use strict;
use warnings;
use utf8;
use Pipework::Atomic;
use Pipework::ReqRep;

binmode STDOUT, ':utf8';
$| = 1;
my ($mode, $path) = @ARGV;

if ($mode eq 'opens') {
    Pipework::ReqRep->open(path => $path);
}
elsif ($mode eq 'serve') {
    # In Perl a response that is not given in parts must fit its slot.
    my $server = Pipework::ReqRep->open_or_create(path => $path, reply_bytes => 100_000);
    while (my ($request, $id) = $server->recv_wait) {
        if ($request eq 'fail') {
            $server->fail($id, 'no: ä');
        }
        elsif ($request eq 'parts') {
            $server->part($id, $_) for 'one', 'two';
            $server->reply($id, '');
        }
        else {
            $server->reply($id, uc $request, blobs => [$server->blobs($id)]);
        }
    }
}
elsif ($mode eq 'call') {
    my $client = Pipework::ReqRep::Client->open(path => $path);
    my $reply  = $client->call_message('abc', timeout => 60, blobs => [$client->blob_from('a blob')]);
    print $reply->data, ' ', ($reply->blobs)[0]->bytes, "\n";
    print $client->call('x' x 100_000, timeout => 60) =~ tr/X//, "\n";
    my $stream = $client->stream('parts', timeout => 60);
    my @parts;
    while (defined(my $part = $stream->next)) { push @parts, $part if length $part }
    print "@parts\n";
    eval { $client->call('fail', timeout => 60) };
    print Pipework::Error->caught('Failed')->reason, "\n";
}
else {
    print "loading...\n";
    my $reader = Pipework::Atomic->from_fh('<&', \*STDIN);
    my $writer = Pipework::Atomic->from_fh('>&', \*STDOUT, mixed_data_mode => 1, compression => 'zstd');
    while (defined(my $message = $reader->read_message)) { $writer->write_message(uc $message) }
}
