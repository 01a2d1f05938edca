# A live exchange with the Python package, both ways.
use strict;
use warnings;
use File::Temp qw(tempdir);
use FindBin ();
use lib $FindBin::Bin;
use Checkout;
use Processes;
use POSIX ();
use Test::More;
use Pipework::Atomic;
use Pipework::ReqRep;

alarm 120;
my $target = built() // plan skip_all => 'the Python package is in the repository';
my ($python) = grep { defined && -x } $ENV{PIPEWORK_PYTHON}, "$target/python-venv/bin/python";
plan skip_all => 'no Python with the package pipework: python/dev build'
    if !$python || system "'$python' -c 'import pipework' 2>/dev/null";

my $folder = tempdir(CLEANUP => 1);
my $json = '{"event":"login","user":"somebody","ok":true}';

# Runs a program with a descriptor that it inherits.
sub start {
    my ($program, $handle, @arguments) = @_;
    my $pid = fork // die "fork: $!";
    return $pid if $pid;
    my $fd = POSIX::dup(fileno $handle);
    exec $python, '-c', "import sys\nfrom pipework import atomic, reqrep\n$program", $fd, @arguments
        or POSIX::_exit(9);
}

for my $way ([], [compression => 'zstd'], [compression => 'zstd', compression_dictionary => $json]) {
    my $name = @$way > 2 ? 'a dictionary' : @$way ? 'zstd' : 'plain';
    my $zstd = @$way > 2 ? "zstd=atomic.Zstd(dictionary=b'$json')" : @$way ? 'zstd=3' : '';
    subtest "$name: from Python" => sub {
        my ($r, $w) = Pipework::Atomic->pair(@$way, mixed_data_mode => 1);
        my @pids = map { start(<<"PYTHON", $w->wh, $_) } 1 .. 3;
writer = atomic.Writer(int(sys.argv[1]), mixed=True, $zstd)
for nth in range(50):
    writer.send(b"%s:" % sys.argv[2].encode() + b"x" * 20_000)
writer.close()
PYTHON
        $w->close;
        $r->blocking(1);
        my %count;
        while (my ($type, $data) = $r->get_line_burst_or_data) {
            $count{$type . substr($data, 0, 2) . length $data}++;
        }
        waitpid $_, 0 for @pids;
        is_deeply(\%count, {map { ("message$_:20002" => 50) } 1 .. 3}, 'whole messages');
    };
    subtest "$name: to Python" => sub {
        my ($r, $w) = Pipework::Atomic->pair(@$way);
        my $pid = start(<<"PYTHON", $r->rh, "$folder/out");
with open(sys.argv[2], "wb") as out, atomic.Reader(int(sys.argv[1]), $zstd) as reader:
    for message in reader.messages():
        out.write(b"%d %s\\n" % (len(message), message[:10]))
PYTHON
        $r->close;
        $w->write_message($_) for $json, '', 'y' x 100_000;
        $w->close;
        is(status($pid), 0, 'its status');
        open my $out, '<', "$folder/out" or die $!;
        is(join('', <$out>), "45 {\"event\":\"\n0 \n100000 yyyyyyyyyy\n", 'whole messages');
    };
}

subtest 'calls from Python' => sub {
    my $path = "$folder/from.shm";
    my $server = Pipework::ReqRep->new($path, 16, 16, 4096);
    my $pid = start(<<'PYTHON', \*STDIN, $path);
with reqrep.Client(sys.argv[2]) as client:
    for nth in range(100):
        assert client.call(b"call %d" % nth, timeout=10) == b"CALL %d" % nth
PYTHON
    for (1 .. 100) {
        my ($request, $id) = $server->recv_wait(20) or last;
        $server->reply($id, uc $request);
    }
    is(status($pid), 0, 'all of them answered');
};

subtest 'calls to Python' => sub {
    my $path = "$folder/to.shm";
    my $segment = Pipework::ReqRep->new($path, 16, 16, 4096);
    my $pid = start(<<'PYTHON', \*STDIN, $path);
for request in reqrep.Server(sys.argv[2]):
    with request:
        if request.data == b"rows":
            for nth in range(3):
                request.send_part(b"row %d" % nth)
            request.reply(b"")
        elif request.data == b"fail":
            request.fail("no such thing")
        else:
            request.reply(request.data[::-1])
PYTHON
    my $client = Pipework::ReqRep::Client->new($path);
    is($client->req_wait('abc', 20), 'cba', 'a call');
    my $stream = $client->stream('rows', 20);
    my @rows;
    while (defined(my $row = $stream->next)) { push @rows, $row if length $row }
    is_deeply(\@rows, ['row 0', 'row 1', 'row 2'], 'a reply in parts');
    is($client->req_wait('fail', 20), undef, 'a failure');
    is(Pipework::reason(), 'no such thing', 'and its reason');
    kill TERM => $pid;
    waitpid $pid, 0;
};

subtest 'blobs to Python and back' => sub {
    my $path = "$folder/blobs.shm";
    my $segment = Pipework::ReqRep->create(path => $path, slots => 4);
    my $pid = start(<<'PYTHON', \*STDIN, $path);
server = reqrep.Server(sys.argv[2])
for request in server:
    bytes = memoryview(request.blobs[0])
    draft = server.segment.blob(len(bytes))
    memoryview(draft)[:] = bytes[::-1]
    request.reply(b"%d" % len(bytes), blobs=[draft.freeze(), request.blobs[0]])
    del bytes
PYTHON
    my $client = Pipework::ReqRep::Client->open(path => $path);
    my $bytes = join ' ', 1 .. 200_000;
    for my $sent ($bytes, '', "\0" x 4096) {
        my $reply = $client->call_message('x', timeout => 20, blobs => [$client->blob_from($sent)]);
        is($reply->data, length $sent, 'the length');
        my ($turned, $same) = map { $_->map } $reply->blobs;
        ok($$turned eq reverse($sent) && $$same eq $sent, 'the bytes');
    }
    is($client->stats->{blobs_copied}, 0, 'nothing was copied');
    kill TERM => $pid;
    waitpid $pid, 0;
};

subtest 'blobs from Python' => sub {
    my $path = "$folder/from_blobs.shm";
    my $server = Pipework::ReqRep->create(path => $path, slots => 4);
    my $pid = start(<<'PYTHON', \*STDIN, $path);
with reqrep.Client(sys.argv[2], timeout=20) as client:
    reply = client.call_message(b"", blobs=[client.segment.blob_from(b"one"), client.segment.blob_from(b"two")])
    assert reply.data == b"one two" and reply.blobs[0].tobytes() == b"two", reply
    parts = list(client.stream_messages(b""))
    assert [[blob.tobytes() for blob in part.blobs] for part in parts] == [[b"made in Perl"], []], parts
PYTHON
    my ($request, $id) = $server->recv_wait(20);
    my @blobs = $server->blobs($id);
    $server->reply($id, join(' ', map { $_->bytes } @blobs), blobs => [$blobs[1]]);
    ($request, $id) = $server->recv_wait(20);
    $server->part($id, '', timeout => 20, blobs => [$server->blob_from('made in Perl')]);
    $server->reply($id, 'end', timeout => 20);
    is(status($pid), 0, 'all of them');
};
done_testing;
