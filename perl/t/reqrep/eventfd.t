# Eventfds that programs ring, and the event loop of the manual.
use strict;
use warnings;
use Test::More;
use File::Temp qw(tempdir);
use Pipework::ReqRep;

alarm 120;
my $folder = tempdir(CLEANUP => 1);

sub readable {
    my ($fd, $seconds) = @_;
    vec(my $bits = '', $fd, 1) = 1;
    return scalar select $bits, undef, undef, $seconds // 0;
}

for my $kind ('', '::Int') {
    my $srv = "Pipework::ReqRep$kind"->new("$folder/rr$kind", 8, 4, $kind ? () : 32);
    my $cli = "Pipework::ReqRep${kind}::Client"->new("$folder/rr$kind");
    is($srv->$_, -1, "server: $_ is -1 at first") for qw(fileno reply_fileno);
    is($cli->$_, -1, "client: $_ is -1 at first") for qw(fileno req_fileno);
    is_deeply([$_->notify], [], 'notify does nothing without an eventfd') for $srv, $cli;
    is_deeply([$srv->reply_notify], [], 'and reply_notify');
    is($srv->$_, undef, "$_: nothing") for qw(eventfd_consume reply_eventfd_consume);
    is($cli->eventfd_consume, undef, 'of a client');

    my $requests = $srv->eventfd;
    my $replies  = $srv->reply_eventfd;
    cmp_ok($requests, '>', 2, 'eventfd');
    isnt($replies, $requests, 'reply_eventfd is another one');
    is($srv->eventfd, $requests, 'the same on each call');
    is($srv->reply_eventfd, $replies, 'of replies');
    is($srv->fileno, $requests, 'fileno');
    is($srv->reply_fileno, $replies, 'reply_fileno');

    is_deeply([$cli->req_eventfd_set($requests)], [], 'req_eventfd_set');
    is_deeply([$cli->eventfd_set($replies)], [], 'eventfd_set');
    is($cli->req_fileno, $requests, 'req_fileno is the number that was set');
    is($cli->fileno, $replies, 'fileno');
    is($cli->eventfd, $replies, 'eventfd');

    is_deeply([$srv->eventfd_set($requests), $srv->reply_eventfd_set($replies)], [],
        'its own are set again');
    ok(-e "/proc/self/fd/$_", 'and stay open') for $requests, $replies;
    is_deeply([$srv->fileno, $srv->reply_fileno], [$requests, $replies], 'with their numbers');
    {
        my $own = "Pipework::ReqRep${kind}::Client"->new("$folder/rr$kind");
        my $its = $own->eventfd;
        $own->eventfd_set($its);
        ok(-e "/proc/self/fd/$its", 'and that of a client');
        $own->req_eventfd_set($requests);
        $own->req_eventfd_set($requests);
        $own->notify;
        is($srv->eventfd_consume, 1, 'a duplicate that is set twice rings once');
    }

    ok(!readable($requests), 'nothing was rung');
    my $id = $cli->send_notify(1);
    ok(readable($requests), 'send_notify rings');
    is($srv->eventfd_consume, 1, 'eventfd_consume: the count');
    ok(!readable($requests), 'consumed');
    is($srv->eventfd_consume, undef, 'undef if there is none');
    $srv->reply(scalar $srv->recv, 7);
    ok(!readable($replies), 'reply does not ring by itself');
    $srv->reply_notify for 1 .. 3;
    ok(readable($replies), 'reply_notify');
    is($cli->eventfd_consume, 3, 'three rings are 3');
    is($cli->get($id), 7, 'the response');
    $id = $cli->send_wait_notify(2, 1);
    is($srv->eventfd_consume, 1, 'send_wait_notify');
    $srv->notify;
    $cli->notify;
    is($srv->eventfd_consume, 2, 'notify, of either side');
    $srv->reply_notify;
    is($srv->reply_eventfd_consume, 1, 'reply_eventfd_consume');
    $srv->drain;
    $cli->send(3) for 1 .. 3;
    is($cli->send_notify(4), undef, 'no slot');
    is($srv->eventfd_consume, undef, 'and no ring');

    for my $wrong (-1, undef, 'x', 2**40, 1.5e9, fileno(STDIN) // 0) {
        for my $set (qw(eventfd_set reply_eventfd_set)) {
            ok(!eval { $srv->$set($wrong); 1 }, "$set(" . ($wrong // 'undef') . ') croaks');
            like($@, qr/not an eventfd/, 'and says why');
        }
    }
    is($srv->fileno, $requests, 'nothing has changed');
    undef $cli;
    ok(-e "/proc/self/fd/$requests",
        'a client closes a duplicate, and not the number that was set');
    $srv->notify;
    is($srv->eventfd_consume, 1, 'which goes on');
    my $second = "Pipework::ReqRep$kind"->new("$folder/rr$kind", 8, 4, $kind ? () : 32);
    $second->eventfd_set($requests);
    undef $srv;
    ok(!-e "/proc/self/fd/$requests", 'it ends with its owner');
    $second->notify;
    is($second->eventfd_consume, 1, 'the duplicate does not');
}

# The event loop of the manual, with select in the place of EV.
{
    my $path   = "$folder/loop";
    my $srv    = Pipework::ReqRep->new($path, 1024, 64, 4096);
    my $req_fd = $srv->eventfd;
    my $rep_fd = $srv->reply_eventfd;
    defined(my $pid = fork) or die "fork: $!";
    if (!$pid) {
        my $cli = Pipework::ReqRep::Client->new($path);
        $cli->req_eventfd_set($req_fd);
        $cli->eventfd_set($rep_fd);
        my $id = $cli->send_notify('wake up');
        my $response;
        until (defined($response = $cli->get($id))) {
            readable($rep_fd, 20) or last;
            $cli->eventfd_consume;
        }
        exit(($response // '') eq 'WAKE UP' ? 0 : 1);
    }
    ok(readable($req_fd, 20), 'the loop wakes');
    $srv->eventfd_consume;
    while (my ($req, $id) = $srv->recv) {
        $srv->reply($id, uc $req);
    }
    $srv->reply_notify;
    waitpid $pid, 0;
    is($?, 0, 'the child has its response');
}
done_testing;
