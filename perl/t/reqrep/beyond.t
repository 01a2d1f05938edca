# Methods that the original does not have: call, fail, is_wanted, forget, stream, recv_any, stop and more.
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
    ok(!eval { $cli->call('x', 0.01); 1 }, 'call dies after its timeout');
    isa_ok($@, 'Pipework::Error');
    is($@->kind, 'TimedOut', 'kind');
    is($@->errno, POSIX::ETIMEDOUT(), 'errno');
    like("$@", qr/^reqrep call: /, 'text');
    ok(Pipework::Error->caught('TimedOut'), 'caught');
    is($cli->pending, 0, 'no call is pending');
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
    is($cli->call($long, 20), $long, 'call sends and receives any length, in parts');
    is(status($pid), 1, 'the server has received all of it');

    my $int = Pipework::ReqRep::Int->new(undef, 8, 4);
    my $one = Pipework::ReqRep::Int::Client->new_from_fd($int->memfd);
    $pid = child { my ($n, $id) = $int->recv_wait(20); $int->reply($id, $n + 1) };
    is($one->call(41, 20), 42, 'call, Int');
    is(status($pid), 1, 'the server has replied');
    ok(!eval { $one->call(41, 0.01); 1 } && $@->kind eq 'TimedOut', 'call of Int dies after its timeout');
}
{   # fail, with a reason
    my ($srv, $cli) = ends();
    my $id = $cli->send('x');
    is($srv->fail(scalar $srv->recv, 'out of stock'), 1, 'fail returns true');
    is($cli->get($id), undef, 'get returns undef');
    is($! + 0, POSIX::ECANCELED(), '$!');
    like(Pipework::error(), qr/^reqrep recv: .*: out of stock\z/, 'error has the reason');
    is(Pipework::reason(), 'out of stock', 'reason');
    is($srv->fail($id, 'again'), '', 'fail returns false the second time');
    is(Pipework::reason(), undef, 'reason is undef after another failure');
    $id = $cli->send('x');
    $srv->fail(scalar $srv->recv);
    is($cli->get_wait($id, 1), undef, 'get_wait after fail without a reason');
    is(Pipework::reason(), undef, 'reason is undef');
    for my $reason ("caf\xe9", "\x{263a}", 'x' x 1000) {
        $id = $cli->send('x');
        $srv->fail(scalar $srv->recv, $reason);
        $cli->get($id);
        is(Pipework::reason(), substr($reason, 0, 64),
            'reason is text, and cut if it is too long');
    }
    my $pid = child { $srv->fail(scalar $srv->recv_wait(20), 'no') };
    ok(!eval { $cli->call('x', 20); 1 }, 'call dies after fail');
    is($@->kind, 'Failed', 'kind');
    is($@->reason, 'no', 'reason');
    is($@->text, 'reqrep call: the other side gave up: no', 'text');
    is("$@", $@->text . " at $0 line " . (__LINE__ - 4) . ".\n", 'as a string, with file and line');
    is_deeply([$@->file, $@->line], [$0, __LINE__ - 5], 'file and line');
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
    is($srv->is_wanted($id), '', 'is_wanted of a cancelled call');
    is($srv->is_wanted(77), '', 'is_wanted of an unknown id');
    ok($!{ESTALE}, '$! is ESTALE');
    $srv->fail($id);
    $id = $cli->send('x');
    is($cli->forget($id), 1, 'forget');
    is($cli->forget($id), '', 'forget returns false the second time');
    is($cli->pending, 0, 'pending after forget');
    is(scalar $srv->recv, $id, 'recv of a forgotten request');
    is($srv->is_wanted($id), 1, 'is_wanted of a forgotten request');
    is($srv->reply($id, 'x'), '', 'reply to a forgotten request returns false');
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
    is_deeply(\@parts, [map { "part $_ of all" } 1 .. 5], 'next returns the parts');
    is($stream->next, undef, 'next after the end returns undef');
    @parts = ();
    $stream = $cli->stream('empty', 20);
    while (defined(my $part = <$stream>)) { push @parts, $part }
    is_deeply(\@parts, ['', 'last'], '<> reads parts, which may be empty, and the reply');
    $stream = $cli->stream('half', 20);
    is($stream->next(20), 'half', 'next before fail');
    ok(!eval { $stream->next; 1 }, 'next after fail dies');
    is($@->kind, 'Failed', 'kind');
    is($@->reason, 'broken', 'reason');
    is($stream->next, undef, 'next after a failure returns undef');
    $stream = $cli->stream('unwanted');
    is($stream->next, 'more', 'next');
    undef $stream;
    is(status($pid), 1, 'a stream that goes out of scope cancels its call');
    is($cli->pending, 0, 'nothing is pending');
    $stream = $cli->stream('x', 0.02);
    ok(!eval { $stream->next; 1 } && $@->kind eq 'TimedOut', 'next waits for the time that stream was given');
    my ($req, $id) = $srv->recv;
    is($srv->part($id, 'here', 0), 1, 'the first part does not wait');
    is($srv->part($id, 'not yet', 0), undef, 'the second part waits until the first was taken');
    ok($!{ETIMEDOUT}, '$!');
    is($stream->next, 'here', 'next after TimedOut goes on');
    ok(!eval { $srv->part($id, 'x' x 65); 1 }, 'part of more than a response dies');
    like($@, qr/^Pipework::ReqRep: response too long \(max 64 bytes\)/, 'the words');
    $srv->reply($id, 'end');
    is($stream->next, 'end', 'next returns the reply');
    is($stream->next, undef, 'and then undef');
    is($srv->part($id, 'x'), '', 'part after reply returns false');
    is($srv->flush($id, 1), '', 'flush after reply returns false');
    $stream = $cli->stream('fails', 20);
    (undef, $id) = $srv->recv;
    $srv->part($id, $_) and $stream->next for 1;
    $srv->part($id, 2, 20);
    is($srv->flush($id, 0), undef, 'flush waits until the part was taken');
    ok($!{ETIMEDOUT}, '$! is ETIMEDOUT');
    is($stream->next, 2, 'next takes the part');
    is($srv->flush($id, 20), 1, 'flush after that returns true');
    is($srv->fail($id, 'enough'), 1, 'fail after flush');
    ok(!eval { $stream->next; 1 }, 'next dies');
    like($@->reason, qr/^enough/, 'with the reason');
    $stream->DESTROY;
    ok(!eval { $stream->next; 1 }, 'next of a destroyed stream dies');
    like($@, qr/^Attempted to use a destroyed Pipework::ReqRep::Stream object/, 'the words');
    my $got = $cli->send('whole');
    $srv->recv;
    $pid = child { 1 };
    is(status($pid), 1, 'a child');
    $srv->part($got, 'one ');
    is($cli->get($got), undef, 'get before the last part returns undef');
    $srv->part($got, 'two ', 20);
    $cli->get($got);
    $srv->reply($got, 'three');
    is($cli->get_wait($got, 20), 'one two three', 'get_wait returns all parts as one response');
}
{   # recv_any
    my ($srv, $cli) = ends();
    is_deeply([$cli->recv_any(1)], [], 'recv_any without a call in progress');
    my @ids = map { $cli->send("r$_") } 1 .. 3;
    is_deeply([$cli->recv_any(0.01)], [], 'recv_any after its timeout');
    ok($!{ETIMEDOUT}, '$! is ETIMEDOUT');
    $srv->recv;
    my (undef, $second) = $srv->recv;
    $srv->reply($second, 'two');
    is_deeply([$cli->recv_any(1)], ['two', $ids[1]], 'recv_any returns the call that ended first');
    $srv->fail($ids[0], 'why not');
    is_deeply([$cli->recv_any], [undef, $ids[0]], 'recv_any of a failed call');
    is(Pipework::reason(), 'why not', 'reason');
    $srv->reply(scalar $srv->recv, 'three');
    is(scalar $cli->recv_any(1), $ids[2], 'recv_any in scalar context');
    is_deeply([$cli->recv_any], [], 'recv_any after the last call');

    my $int = Pipework::ReqRep::Int->new(undef, 8, 4);
    my $one = Pipework::ReqRep::Int::Client->new_from_fd($int->memfd);
    is_deeply([$one->recv_any(1)], [], 'Int: recv_any without a call in progress');
    @ids = map { $one->send($_) } 1 .. 3;
    my %taken = $int->drain;
    $int->reply($taken{2}, -2);
    is_deeply([$one->recv_any(1)], [-2, $ids[1]], 'Int: recv_any returns the call that ended first');
    $int->fail($taken{1});
    is_deeply([$one->recv_any(1)], [undef, $ids[0]], 'Int: recv_any of a failed call');
}
{   # stop
    my ($srv, $cli) = ends();
    my $id = $cli->send('x');
    my $taken = $srv->recv;
    $cli->send('y');
    is_deeply([$srv->stop], [], 'stop');
    is_deeply([$srv->recv_wait], [], 'recv_wait after stop');
    ok($!{EPIPE}, '$! is EPIPE');
    is_deeply([$srv->recv], [], 'recv after stop');
    is($srv->reply($taken, 'done'), 1, 'reply to a request that was taken');
    is($cli->get($id), 'done', 'its response');
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
    @geometry{qw(members blobs integers)} = (1024, 8, 0);
    is_deeply($_->geometry, \%geometry, 'geometry') for $srv, $cli;
    is_deeply([$srv->members], [], 'members before the first call');
    $cli->send('x') for 1 .. 2;
    $srv->recv;
    my $audit = $cli->audit;
    is_deeply([@$audit{qw(free waiting taken damaged orphaned)}], [2, 1, 1, 0, 0], 'audit');
    is($srv->recover, 0, 'recover without a dead member');
    is(scalar(my @members = $srv->members), 2, 'members');
    require File::Temp;
    my $folder = File::Temp::tempdir(CLEANUP => 1);
    Pipework::ReqRep::Int->new("$folder/rr", 8, 4);
    is(Pipework::ReqRep->geometry("$folder/rr")->{integers}, 1, 'geometry of a path');
    ok(!eval { Pipework::ReqRep->geometry("$folder/none"); 1 }, 'geometry of no file');
    is($@->errno, POSIX::ENOENT(), 'errno');
}
{   # errors
    ok(Pipework::error() + 0, 'error is a number');
    my ($srv, $cli) = ends();
    $! = 0;
    my $id = $cli->send('x');
    $srv->reply(scalar $srv->recv, 'y');
    $cli->get($id);
    is($! + 0, 0, 'success does not change $!');
    $srv->recv;
    like(Pipework::error(), qr/^reqrep recv: /, 'error is a text');
    is(Pipework::error() + 0, 1, 'and a number');
    ok($!{EAGAIN}, '$!');
    $cli->get($id);
    like(Pipework::error(), qr/^reqrep recv: /, 'error after the next failure');
    is(Pipework::error() + 0, 6, 'its number');
}
done_testing;
