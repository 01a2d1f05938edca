# What the original does not have: exceptions, reasons, parts, recv_any, stop and more.
use strict;
use warnings;
use Test::More;
use FindBin ();
use lib "$FindBin::Bin/..";
use Processes;
use POSIX ();
use Time::HiRes qw(sleep);
use Pipework::ReqRep;

alarm 120;

sub ends {
    my $srv = Pipework::ReqRep->new(undef, @_ ? @_ : (8, 4, 64));
    return ($srv, Pipework::ReqRep::Client->new_from_fd($srv->memfd));
}

{   # call
    my ($srv, $cli) = ends();
    ok(!eval { $cli->call('x', 0.01); 1 }, 'call dies');
    isa_ok($@, 'Pipework::Error');
    is($@->kind, 'TimedOut', 'its kind');
    is($@->errno, POSIX::ETIMEDOUT(), 'its errno');
    like("$@", qr/^reqrep call: /, 'its text');
    ok(Pipework::Error->caught('TimedOut'), 'caught');
    is($cli->pending, 0, 'nothing stays behind');
    my $long = 'long ' x 100_000;
    my $pid  = child {
        my ($req, $id) = $srv->recv_wait(20);
        $srv->reply($id, 'short');
        ($req, $id) = $srv->recv_wait(20);
        $srv->part($id, $_) for unpack '(a64)*', $long;
        $srv->reply($id, '');
        return $req eq $long;
    };
    is($cli->call('x'), 'short', 'call');
    is($cli->call($long, 20), $long, 'requests and replies of any length, in parts');
    is(status($pid), 1, 'the server has got all');

    my $int = Pipework::ReqRep::Int->new(undef, 8, 4);
    my $one = Pipework::ReqRep::Int::Client->new_from_fd($int->memfd);
    $pid = child { my ($n, $id) = $int->recv_wait(20); $int->reply($id, $n + 1) };
    is($one->call(41, 20), 42, 'call, Int');
    is(status($pid), 1, 'it has answered');
    ok(!eval { $one->call(41, 0.01); 1 } && $@->kind eq 'TimedOut', 'and dies');
}
{   # fail, with a reason
    my ($srv, $cli) = ends();
    my $id = $cli->send('x');
    is($srv->fail(scalar $srv->recv, 'out of stock'), 1, 'fail: true');
    is($cli->get($id), undef, 'get: undef');
    is($! + 0, POSIX::ECANCELED(), '$!');
    like(Pipework::error(), qr/^reqrep recv: .*: out of stock\z/, 'the text has the reason');
    is(Pipework::reason(), 'out of stock', 'reason');
    is($srv->fail($id, 'again'), '', 'false the second time');
    is(Pipework::reason(), undef, 'the last failure has none');
    $id = $cli->send('x');
    $srv->fail(scalar $srv->recv);
    is($cli->get_wait($id, 1), undef, 'without a reason');
    is(Pipework::reason(), undef, 'there is none');
    for my $reason ("caf\xe9", "\x{263a}", 'x' x 1000) {
        $id = $cli->send('x');
        $srv->fail(scalar $srv->recv, $reason);
        $cli->get($id);
        is(Pipework::reason(), substr($reason, 0, 64),
            'a reason is text, and cut if it is too long');
    }
    my $pid = child { $srv->fail(scalar $srv->recv_wait(20), 'no') };
    ok(!eval { $cli->call('x', 20); 1 }, 'call dies');
    is($@->kind, 'Failed', 'its kind');
    is($@->reason, 'no', 'its reason');
    is($@->text, 'reqrep call: the other side gave up: no', 'its text');
    is("$@", $@->text . " at $0 line " . (__LINE__ - 4) . ".\n", 'as a string, with the place');
    is_deeply([$@->file, $@->line], [$0, __LINE__ - 5], 'its place');
    is(status($pid), 1, 'the server');
    my $int = Pipework::ReqRep::Int->new(undef, 8, 4);
    my $one = Pipework::ReqRep::Int::Client->new_from_fd($int->memfd);
    $id = $one->send(1);
    is($int->fail(scalar $int->recv), 1, 'fail, Int');
    is($one->get($id), undef, 'undef');
}
{   # is_wanted, forget
    my ($srv, $cli) = ends();
    my $id = $cli->send('x');
    $srv->recv;
    is($srv->is_wanted($id), 1, 'is_wanted');
    $cli->cancel($id);
    is($srv->is_wanted($id), '', 'not when it was cancelled');
    is($srv->is_wanted(77), '', 'not an id that there is none of');
    ok($!{ESTALE}, 'which $! tells');
    $srv->fail($id);
    $id = $cli->send('x');
    is($cli->forget($id), 1, 'forget');
    is($cli->forget($id), '', 'once');
    is($cli->pending, 0, 'nobody waits for it');
    is(scalar $srv->recv, $id, 'a server gets it all the same');
    is($srv->is_wanted($id), 1, 'and is to carry it out');
    is($srv->reply($id, 'x'), '', 'for nobody');
}
{   # streams
    my ($srv, $cli) = ends();
    my $pid = child {
        my ($req, $id) = $srv->recv_wait(20);
        for my $i (1 .. 5) { $srv->part($id, "part $i of $req") or return }
        $srv->reply($id, '');
        ($req, $id) = $srv->recv_wait(20);
        $srv->part($id, '');
        $srv->reply($id, 'last');
        ($req, $id) = $srv->recv_wait(20);
        $srv->part($id, 'half');
        # A failure overtakes a part that was not taken, and its reason is left out then.
        sleep 0.01 until $srv->audit->{in_parts} == 0;
        $srv->fail($id, 'broken');
        ($req, $id) = $srv->recv_wait(20);
        1 while $srv->part($id, 'more');
        return !$srv->is_wanted($id) && !$srv->reply($id, '');
    };
    my $stream = $cli->stream('all', 20);
    isa_ok($stream, 'Pipework::ReqRep::Stream');
    my @parts;
    while (defined(my $part = $stream->next)) { push @parts, $part }
    is_deeply(\@parts, [map { "part $_ of all" } 1 .. 5], 'next: the parts');
    is($stream->next, undef, 'undef for good');
    @parts = ();
    $stream = $cli->stream('empty', 20);
    while (defined(my $part = <$stream>)) { push @parts, $part }
    is_deeply(\@parts, ['', 'last'], 'a part may be empty; the last reply is one; <> reads, too');
    $stream = $cli->stream('half', 20);
    is($stream->next(20), 'half', 'before it fails');
    ok(!eval { $stream->next; 1 }, 'a stream that fails dies');
    is($@->kind, 'Failed', 'its kind');
    is($@->reason, 'broken', 'its reason');
    is($stream->next, undef, 'and is over');
    $stream = $cli->stream('unwanted');
    is($stream->next, 'more', 'a stream');
    undef $stream;
    is(status($pid), 1, 'that is dropped cancels its call');
    is($cli->pending, 0, 'nothing is pending');
    $stream = $cli->stream('x', 0.02);
    ok(!eval { $stream->next; 1 } && $@->kind eq 'TimedOut', 'next waits as long as stream said');
    my ($req, $id) = $srv->recv;
    is($srv->part($id, 'here', 0), 1, 'part does not wait for the first');
    is($srv->part($id, 'not yet', 0), undef, 'the second when the first was taken');
    ok($!{ETIMEDOUT}, '$!');
    is($stream->next, 'here', 'a stream goes on after it was late');
    ok(!eval { $srv->part($id, 'x' x 65); 1 }, 'a part that is too long');
    like($@, qr/^Pipework::ReqRep: response too long \(max 64 bytes\)/, 'croaks');
    $srv->reply($id, 'end');
    is($stream->next, 'end', 'a reply ends it');
    is($stream->next, undef, 'so it does');
    is($srv->part($id, 'x'), '', 'part of what was answered');
    is($srv->flush($id, 1), '', 'nor is there anything to flush');
    $stream = $cli->stream('fails', 20);
    (undef, $id) = $srv->recv;
    $srv->part($id, $_) and $stream->next for 1;
    $srv->part($id, 2, 20);
    is($srv->flush($id, 0), undef, 'flush waits until the last part was taken');
    ok($!{ETIMEDOUT}, 'and says so');
    is($stream->next, 2, 'it is');
    is($srv->flush($id, 20), 1, 'and then flush is done');
    is($srv->fail($id, 'enough'), 1, 'what fails then');
    ok(!eval { $stream->next; 1 }, 'fails at the stream');
    like($@->reason, qr/^enough/, 'and its reason arrives');
    $stream->DESTROY;
    ok(!eval { $stream->next; 1 }, 'destroyed');
    like($@, qr/^Attempted to use a destroyed Pipework::ReqRep::Stream object/, 'says so');
    my $got = $cli->send('whole');
    $srv->recv;
    $pid = child { 1 };
    is(status($pid), 1, 'a child');
    $srv->part($got, 'one ');
    is($cli->get($got), undef, 'who does not ask for parts');
    $srv->part($got, 'two ', 20);
    $cli->get($got);
    $srv->reply($got, 'three');
    is($cli->get_wait($got, 20), 'one two three', 'gets all of them as one');
}
{   # recv_any
    my ($srv, $cli) = ends();
    is_deeply([$cli->recv_any(1)], [], 'recv_any: nothing is in progress');
    my @ids = map { $cli->send("r$_") } 1 .. 3;
    is_deeply([$cli->recv_any(0.01)], [], 'none has ended');
    ok($!{ETIMEDOUT}, 'which $! tells');
    $srv->recv;
    my (undef, $second) = $srv->recv;
    $srv->reply($second, 'two');
    is_deeply([$cli->recv_any(1)], ['two', $ids[1]], 'whichever ends first');
    $srv->fail($ids[0], 'why not');
    is_deeply([$cli->recv_any], [undef, $ids[0]], 'undef for one that has failed');
    is(Pipework::reason(), 'why not', 'and why');
    $srv->reply(scalar $srv->recv, 'three');
    is(scalar $cli->recv_any(1), $ids[2], 'in scalar context the id');
    is_deeply([$cli->recv_any], [], 'all have ended');

    my $int = Pipework::ReqRep::Int->new(undef, 8, 4);
    my $one = Pipework::ReqRep::Int::Client->new_from_fd($int->memfd);
    is_deeply([$one->recv_any(1)], [], 'Int: nothing is in progress');
    @ids = map { $one->send($_) } 1 .. 3;
    my %taken = $int->drain;
    $int->reply($taken{2}, -2);
    is_deeply([$one->recv_any(1)], [-2, $ids[1]], 'Int: whichever ends first');
    $int->fail($taken{1});
    is_deeply([$one->recv_any(1)], [undef, $ids[0]], 'Int: undef for one that has failed');
}
{   # stop
    my ($srv, $cli) = ends();
    my $id = $cli->send('x');
    my $taken = $srv->recv;
    $cli->send('y');
    is_deeply([$srv->stop], [], 'stop');
    is_deeply([$srv->recv_wait], [], 'recv_wait ends at once');
    ok($!{EPIPE}, 'which $! tells');
    is_deeply([$srv->recv], [], 'recv');
    is($srv->reply($taken, 'done'), 1, 'what was taken can be answered');
    is($cli->get($id), 'done', 'and is');
}
{   # needs_server
    my ($srv) = ends();
    my $cli = Pipework::ReqRep::Client->open(fd => $srv->memfd, needs_server => 1);
    is($cli->req('x'), undef, 'req returns undef at once if no server is attached');
    ok($!{ENOTCONN}, 'and $! is ENOTCONN');
    ok(!eval { $cli->call('x'); 1 } && $@->kind eq 'NoServer', 'call dies');
}
{   # audit, geometry, members, recover
    my ($srv, $cli) = ends();
    my %geometry = (slots => 4, queue => 8, request_bytes => 4096, reply_bytes => 64);
    @geometry{qw(members integers)} = (1024, 0);
    is_deeply($_->geometry, \%geometry, 'geometry') for $srv, $cli;
    is_deeply([$srv->members], [], 'nobody is attached before the first call');
    $cli->send('x') for 1 .. 2;
    $srv->recv;
    my $audit = $cli->audit;
    is_deeply([@$audit{qw(free waiting taken damaged orphaned)}], [2, 1, 1, 0, 0], 'audit');
    is($srv->recover, 0, 'recover: nobody has died');
    is(scalar(my @members = $srv->members), 2, 'members');
    require File::Temp;
    my $folder = File::Temp::tempdir(CLEANUP => 1);
    Pipework::ReqRep::Int->new("$folder/rr", 8, 4);
    is(Pipework::ReqRep->geometry("$folder/rr")->{integers}, 1, 'geometry of a path');
    ok(!eval { Pipework::ReqRep->geometry("$folder/none"); 1 }, 'of none');
    is($@->errno, POSIX::ENOENT(), 'dies');
}
{   # errors
    ok(Pipework::error() + 0, 'error is a number');
    my ($srv, $cli) = ends();
    $! = 0;
    my $id = $cli->send('x');
    $srv->reply(scalar $srv->recv, 'y');
    $cli->get($id);
    is($! + 0, 0, '$! is not touched on success');
    $srv->recv;
    like(Pipework::error(), qr/^reqrep recv: /, 'error is a text');
    is(Pipework::error() + 0, 1, 'and a number');
    ok($!{EAGAIN}, '$!');
    $cli->get($id);
    like(Pipework::error(), qr/^reqrep recv: /, 'the next failure');
    is(Pipework::error() + 0, 6, 'is kept then');
}
done_testing;
