# Doorbells: event loops that need no help from the other side. A plain select loop and a poll loop,
# and EV, AnyEvent and IO::Async where they are installed.
use strict;
use warnings;
use Test::More;
use FindBin ();
use lib "$FindBin::Bin/..";
use IO::Poll qw(POLLIN);
use IO::Select;
use Processes;
use Time::HiRes qw(sleep);
use Pipework::ReqRep;

alarm 120;

sub ends {
    my ($kind) = @_;
    my $srv = "Pipework::ReqRep$kind"->new(undef, 8, 4, $kind ? () : 64);
    return ($srv, "Pipework::ReqRep${kind}::Client"->new_from_fd($srv->memfd));
}

for my $kind ('', '::Int') {
    my ($srv, $cli) = ends($kind);
    $! = 42;
    my @bells = ($srv->doorbell, $cli->doorbell, $cli->send_doorbell);
    is($! + 0, 42, 'doorbells leave $! as it was');
}
for my $kind ('', '::Int') {
    my ($srv, $cli) = ends($kind);
    my $bell = $srv->doorbell;
    is(ref $bell, 'GLOB', 'a handle');
    cmp_ok(fileno $bell, '>', 2, 'with a descriptor');
    my $loop = IO::Select->new($bell);
    is_deeply([$loop->can_read(0)], [], 'server: not readable without a request');
    my $id = $cli->send(7);
    is_deeply([$loop->can_read(10)], [$bell], 'readable with one');
    is_deeply([$srv->recv], [7, $id], 'which is there');
    is_deeply([$srv->recv], [], 'alone');
    is_deeply([$loop->can_read(0)], [], 'not readable any more');

    my $other = $cli->doorbell;
    my $poll  = IO::Poll->new;
    $poll->mask($other => POLLIN);
    is($poll->poll(0), 0, 'client: not readable without a response');
    $srv->reply($id, 8);
    is($poll->poll(10), 1, 'readable with one');
    is($cli->get($id), 8, 'which is there');
    is($poll->poll(0), 0, 'not readable any more');

    my $space = $cli->send_doorbell;
    $loop = IO::Select->new($space);
    is_deeply([$loop->can_read(10)], [$space], 'send_doorbell: a request can be sent');
    1 while $id = $cli->send(1);
    is_deeply([$loop->can_read(0)], [], 'until there is no slot');
    $srv->clear;
    my ($got) = IO::Select->new($other)->can_read(10);
    is($got, $other, 'a failure is something to receive as well');

    my $fd = fileno $bell;
    close $bell;
    ok(!-e "/proc/self/fd/$fd", 'the program closes it');
    isnt($srv->doorbell, $srv->doorbell, 'and gets another one');
    $srv->stop;
    ok(IO::Select->new($bell = $srv->doorbell)->can_read(10),
        'readable once the server was stopped');
}
{   # The death of a server is something to receive, too.
    my ($srv, $cli) = ends('');
    my $bell = $cli->doorbell;
    my $pid  = child { $srv->recv_wait(20); kill 9, $$; sleep 20 };
    my $id   = $cli->send('x');
    ok(IO::Select->new($bell)->can_read(10), 'it rings');
    is($cli->get($id), undef, 'nothing came');
    ok($!{ECONNRESET}, 'because its server has died');
    waitpid $pid, 0;
}
{   # A child has a doorbell of its own.
    my ($srv, $cli) = ends('');
    my $parents = $srv->doorbell;
    my $pid = child {
        my $mine = $srv->doorbell;
        IO::Select->new($mine)->can_read(20) or return;
        my ($req, $id) = $srv->recv or return;
        $srv->reply($id, "$req $$");
    };
    is($cli->req_wait('for', 20), "for $pid", 'it is rung');
    is(status($pid), 1, 'in the child');
}

# How each loop waits for a handle, once; the loop runs until $done is true.
my %loops = (
    select => sub {
        my ($watched, $done) = @_;
        while (!$$done) {
            my %by  = map { fileno $_->[0] => $_->[1] } @$watched;
            my $all = '';
            vec($all, $_, 1) = 1 for keys %by;
            select($all, undef, undef, 10) or return;
            vec($all, $_, 1) and $by{$_}->() for keys %by;
        }
        return 1;
    },
    EV => sub {
        my ($watched, $done) = @_;
        my @kept;
        for my $pair (@$watched) {
            my ($bell, $run) = @$pair;
            push @kept, EV::io(fileno $bell, EV::READ(), sub { $run->() });
        }
        my $timer = EV::timer(10, 0, sub { EV::break() });
        EV::run(EV::RUN_ONCE()) while !$$done && $timer->is_active;
        return $$done;
    },
    AnyEvent => sub {
        my ($watched, $done) = @_;
        my $over = AnyEvent->condvar;
        my @kept;
        for my $pair (@$watched) {
            my ($bell, $run) = @$pair;
            my $rung = sub { $run->(); $over->send if $$done };
            push @kept, AnyEvent->io(fh => $bell, poll => 'r', cb => $rung);
        }
        my $timer = AnyEvent->timer(after => 60, cb => sub { $over->send });
        $over->recv;
        return $$done;
    },
    'IO::Async::Loop' => sub {
        my ($watched, $done) = @_;
        my $loop = IO::Async::Loop->new;
        $loop->watch_io(handle => $_->[0], on_read_ready => $_->[1]) for @$watched;
        my $over;
        $loop->watch_time(after => 60, code => sub { $over = 1 });
        $loop->loop_once(1) while !$$done && !$over;
        $loop->unwatch_io(handle => $_->[0], on_read_ready => 1) for @$watched;
        return $$done;
    },
);
for my $name (sort keys %loops) {
  SKIP: {
        skip "$name is not installed", 3 if $name ne 'select' && !eval "require $name; 1";
        my ($srv, $cli) = ends('');
        my (%open, @responses, $done);
        my $server = $srv->doorbell;
        my $client = $cli->doorbell;
        my $ended  = 0;
        # Requests of this process and of another one.
        pipe my $told, my $tells or die $!;
        my $pid = child {
            my $theirs = $cli->new_from_fd($srv->memfd);
            for my $i (1 .. 50) { return if $theirs->req_wait("child $i", 20) ne "CHILD $i" }
            syswrite $tells, 'all';
        };
        close $tells;
        $open{$cli->send("mine $_")} = $_ for 1 .. 2;
        my $sent = 2;
        my $ok = $loops{$name}->([
            [$server, sub {
                while (my ($req, $id) = $srv->recv) { $srv->reply($id, uc $req) }
            }],
            [$client, sub {
                for my $id (keys %open) {
                    my $response = $cli->get($id) // next;
                    push @responses, $response;
                    delete $open{$id};
                    $open{$cli->send('mine ' . ++$sent)} = 1 if $sent < 50;
                }
                $done = @responses == 50;
            }],
        ], \$done);
        ok($ok, "$name: the loop ends");
        is_deeply([sort @responses], [sort map { "MINE $_" } 1 .. 50],
            "$name: all responses have come");
        # The child may be the slower one. Some loops wait for children themselves.
        until (IO::Select->new($told)->can_read(0)) {
            my ($req, $id) = $srv->recv_wait(0.1) or next;
            $srv->reply($id, uc $req);
        }
        sysread $told, my $text, 3;
        is($text, 'all', "$name: and those of another process");
        waitpid $pid, 0;
    }
}
done_testing;
