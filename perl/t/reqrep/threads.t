# Perl threads: they share a client or a server, and the last one ends it.
use strict;
use warnings;
use Config;
use Test::More;
BEGIN { plan skip_all => 'this perl has no threads' if !$Config{useithreads} }
use threads;
use threads::shared;
use FindBin ();
use lib "$FindBin::Bin/..";
use Asleep qw(alarm_asleep until_threads_sleep);
use Pipework::ReqRep;

alarm 120;

sub ends {
    my ($kind) = @_;
    my $srv = "Pipework::ReqRep$kind"->new(undef, 32, 16, $kind ? () : 64);
    return ($srv, "Pipework::ReqRep${kind}::Client"->new_from_fd($srv->memfd));
}

for my $kind ('', '::Int') {
    my ($srv, $cli) = ends($kind);
    my @servers = map {
        threads->create(sub {
            my $count = 0;
            while (my ($n, $id) = $srv->recv_wait(20)) {
                $srv->reply($id, $n * 2);
                $count++;
            }
            return $count;
        });
    } 1 .. 2;
    my @clients = map {
        my $from = $_ * 1000;
        threads->create(sub {
            my $wrong = 0;
            for my $n ($from .. $from + 199) { $wrong++ if $cli->req($n) != $n * 2 }
            return $wrong;
        });
    } 1 .. 3;
    is($_->join, 0, "a client$kind has its own responses") for @clients;
    is(scalar(my @members = $cli->members), 2, 'threads share a membership');
    $srv->stop;
    my $sum = 0;
    $sum += $_->join for @servers;
    is($sum, 600, 'the servers have answered all');
}
{   # A call goes on in another thread.
    my ($srv, $cli) = ends('');
    my $id  = $cli->send('x');
    my $got = $srv->recv;
    threads->create(sub { $srv->reply($got, 'from a thread') })->join;
    is(threads->create(sub { $cli->get($id) })->join, 'from a thread',
        'ids are the same in all threads');
    is($cli->pending, 0, 'it is over in all of them');
}
{   # An object dropped by one thread stays usable in the others.
    my ($srv, $cli) = ends('');
    my $id = $cli->send('x');
    threads->create(sub { undef $cli; undef $srv; 1 })->join;
    is(scalar $srv->recv, $id, 'a thread that drops them ends nothing');
    threads->create(sub { $cli->DESTROY; 1 })->join;
    is($cli->pending, 1, 'nor one that destroys its own');
    my $fd = $srv->eventfd;
    is(threads->create(sub { $srv->notify; $srv->eventfd })->join, $fd, 'they share an eventfd');
    is($srv->eventfd_consume, 1, 'which a thread has rung');
    my $bell = $srv->doorbell;
    $cli->send('y');
    my $watch = sub { vec(my $bits = '', fileno $bell, 1) = 1; select $bits, undef, undef, 10 };
    ok(threads->create($watch)->join, 'a doorbell in a thread');
}
{   # The first one to attach is a thread.
    my ($srv, $cli) = ends('');
    my @threads = map { threads->create(sub { $cli->send('x') }) } 1 .. 4;
    my @ids     = map { $_->join } @threads;
    is(scalar(grep { $_ } @ids), 4, 'threads that attach at the same time');
    is($cli->pending, 4, 'are one client');
    is($srv->size, 4, 'what they have sent is there');
}
{   # A stream is one thread's.
    my ($srv, $cli) = ends('');
    my $stream = $cli->stream('x');
    my $said = threads->create(sub { eval { $stream->next }; $@ })->join;
    like($said, qr/^Attempted to use a destroyed Pipework::ReqRep::Stream object/,
        'a thread gets no stream');
    $srv->reply(scalar $srv->recv, 'part');
    is($stream->next, 'part', 'it stays where it was made');
}
{   # Threads have blobs and maps of their own; a draft is one thread's.
    my ($srv, $cli) = ends('');
    my ($blob, $draft) = ($cli->blob_from('bytes'), $cli->blob(3));
    my $map = $blob->map;
    my @threads = map {
        threads->create(sub {
            my $same = 0;
            for (1 .. 500) {
                my $own = $blob->map;
                $same += $$own eq 'bytes' && $$map eq 'bytes' && $blob->substr(1, 2) eq 'yt';
            }
            undef $map;
            eval { $draft->write(0, 'x') };
            return "$same " . $blob->bytes . " $@";
        });
    } 1 .. 3;
    undef $blob;
    like($_->join, qr/^500 bytes Attempted to use a destroyed Pipework::ReqRep::BlobMut object/, 'in a thread')
        for @threads;
    is($$map, 'bytes', 'the map stays when threads drop theirs');
    $draft->write(0, 'abc');
    is($draft->freeze->bytes, 'abc', 'and so does the draft');
    undef $draft;
    $blob = threads->create(sub { $cli->send('x', blobs => [$cli->blob_from('from a thread')]); 1 })->join;
    is(($srv->blobs(scalar $srv->recv))[0]->bytes, 'from a thread', 'what a thread has sent stays');
    undef $map;
    is($cli->stats->{blob_bytes_held}, 0, 'nothing is held');
}
{   # A wait in each of two threads, and a signal.
    my ($srv, $cli) = ends('');
    my $thread = threads->create(sub { scalar $srv->recv_wait(20) });
    until_threads_sleep;
    local $SIG{ALRM} = sub { $cli->send('handled') };
    alarm_asleep;
    is($cli->req_wait('waits', 0.3), undef, 'a handler runs in the thread that perl chooses');
    ok($thread->join, 'and the other one goes on');
}
{   # Failures are each thread's own.
    my ($srv, $cli) = ends('');
    my $id = $cli->send('x');
    $srv->fail(scalar $srv->recv, 'reason');
    $cli->get($id);
    my $all = sub { Pipework::error() . (Pipework::reason() // '') };
    is(threads->create($all)->join, '', 'a thread begins without');
    is(Pipework::reason(), 'reason', 'which stays here');
}
done_testing;
