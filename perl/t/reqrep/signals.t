# Signal handlers run in every wait: one that returns, dies, closes, uses the object.
use strict;
use warnings;
use Test::More;
use FindBin ();
use lib "$FindBin::Bin/..";
use Asleep qw(alarm_asleep no_alarm);
use Time::HiRes qw(time sleep ualarm);
use Pipework::ReqRep;

$SIG{__DIE__} = 'DEFAULT';
my $watchdog = fork // die "fork: $!";
if (!$watchdog) { sleep 300; kill 9, getppid; exit }

my ($srv, $cli);
sub ends {
    my ($kind) = @_;
    $srv = "Pipework::ReqRep$kind"->new(undef, 8, 4, $kind ? () : 64);
    $cli = "Pipework::ReqRep${kind}::Client"->new_from_fd($srv->memfd);
}

# Every call that waits, prepared so that nothing ends the wait.
my %waits = (
    recv_wait        => sub { $srv->recv_wait($_[0]) },
    recv_wait_multi  => sub { $srv->recv_wait_multi(3, $_[0]) },
    req              => sub { defined $_[0] ? $cli->req_wait(1, $_[0]) : $cli->req(1) },
    call             => sub { $cli->call(1, $_[0]) },
    get_wait         => sub { $cli->get_wait(scalar $cli->send(1), $_[0]) },
    send_wait        => sub { 1 while $cli->send(1); $cli->send_wait(1, $_[0]) },
    recv_any         => sub { $cli->send(1); $cli->recv_any($_[0]) },
    send_wait_notify => sub { 1 while $cli->send(1); $cli->send_wait_notify(1, $_[0]) },
);
my %of_strings = (
    stream   => sub { 1 while $cli->send(1); $cli->stream(1, $_[0]) },
    next     => sub { my $s = $cli->stream(1, $_[0]); $s->next },
    part     => sub {
        my $s = $cli->stream(1);
        my $id = $srv->recv;
        $srv->part($id, 'first');
        $srv->part($id, 'second', $_[0]);
    },
);

for my $kind ('', '::Int') {
    my %all = (%waits, $kind ? () : %of_strings);
    for my $wait (sort keys %all) {
        my $run = $all{$wait};
        my $throws = $wait =~ /^(call|stream|next)$/;
        my $name = "$wait$kind";

        my $handled = 0;
        my ($began, @got);
        local $SIG{ALRM} = sub { $handled++; alarm_asleep };
        # On a busy machine the signal may come after the shorter ones.
        for my $secs (0.15, 2, 30) {
            ends($kind);
            alarm_asleep;
            $began = time;
            @got = eval { $run->($secs) };
            $began = time - $began - $secs;
            no_alarm;
            last if $handled;
        }
        cmp_ok($began, '>=', -0.01, "$name: a handler that returns does not end the wait");
        cmp_ok($handled, '>=', 1, "$name: it ran in the wait");
        ok($throws ? $@ && $@->kind eq 'TimedOut' : !$@ && !grep({ defined } @got),
            "$name: the time was over") or diag explain [$@, \@got];

        ends($kind);
        local $SIG{ALRM} = sub { die "handler\n" };
        alarm_asleep;
        eval { $run->(); 1 };
        my $died = $@;
        is($died, "handler\n", "$name: a handler that dies ends it");
        my %sent = (get_wait => 1, recv_any => 1);
        @sent{qw(send_wait send_wait_notify stream)} = (4, 4, 4);
        is($cli->pending, $sent{$wait} // 0, "$name: nothing stays behind") if $wait ne 'part';

        ends($kind);
        my $class = $wait =~ /recv_wait|part/ ? "Pipework::ReqRep$kind"
            : $wait eq 'next' ? undef : "Pipework::ReqRep${kind}::Client";
        if ($class) {
            local $SIG{ALRM} = sub { $wait =~ /recv_wait|part/ ? $srv->DESTROY : $cli->DESTROY };
            alarm_asleep;
            eval { $run->() };
            like($@, qr/^Attempted to use a destroyed $class object/,
                "$name: a handler that destroys the object");
            ends($kind);
            $SIG{ALRM} = sub { undef $srv; undef $cli };
            alarm_asleep;
            eval { $run->() };
            like($@, qr/^Attempted to use a destroyed $class object/, "$name: or lets go of it");
        }

        ends($kind);
        my $used = '';
        local $SIG{ALRM} = sub {
            my $other = $cli->new_from_fd($srv->memfd);
            $used = $srv->stats->{size} . $cli->pending . $other->pending;
            $used .= $cli->get(1) // 'none';
        };
        for my $secs (0.1, 2, 30) {
            alarm_asleep;
            eval { $run->($secs) };
            no_alarm;
            last if $used;
            ends($kind);
        }
        like($used, qr/^\d\d0none$/, "$name: a handler that uses the object");
    }
}

# A handler answers the very call that waits.
{
    ends('');
    local $SIG{ALRM} = sub { my ($req, $id) = $srv->recv; $srv->reply($id, "answered $req") };
    alarm_asleep;
    is($cli->req('in a handler'), 'answered in a handler', 'a handler answers the call that waits');
    local $SIG{ALRM} = sub { $cli->send('sent in a handler') };
    alarm_asleep;
    is((($srv->recv_wait)[0]), 'sent in a handler', 'or sends what is waited for');
    local $SIG{ALRM} = sub { $srv->stop };
    alarm_asleep;
    is_deeply([$srv->recv_wait], [], 'or stops the server');
    ok($!{EPIPE}, '$! is EPIPE');
}

# The payload is as it was when the call began.
{
    ends('');
    1 while $cli->send('x');
    my $data = 'before';
    local $SIG{ALRM} = sub { $data = 'y' x 1000; $srv->drain };
    $srv->reply(scalar $srv->recv, 'x') for 1;
    local $SIG{ALRM} = sub { $data =~ s/.*/changed/; undef $data; my ($first) = $cli->recv_any(0) };
    alarm_asleep;
    my $id = $cli->send_wait($data, 60);
    my %sent = reverse $srv->drain;
    is($sent{$id}, 'before', 'a handler may change what is being sent');
}

# Handlers that die, again and again, lose nothing.
{
    ends('');
    my $died = 0;
    for (1 .. 300) {
        local $SIG{ALRM} = sub { die "handler\n" };
        eval { ualarm 1_000; $cli->req('x'); 1 } or $died++;
        eval { ualarm 1_000; $srv->recv_wait; 1 } or $died++ if !$srv->size;
        ualarm 0;
    }
    cmp_ok($died, '>=', 300, 'each has ended its wait');
    is($cli->pending, 0, 'nothing is pending');
    $srv->drain;
    my $id = $cli->send('still works');
    is_deeply([$srv->recv], ['still works', $id], 'and all is as before');
    is($srv->audit->{free}, 3, 'three of four slots are free');
}
# The call does not keep the object, in any kind of variable.
for my $method (qw(req call send_wait stream)) {
    ends('');
    my %held = (client => Pipework::ReqRep::Client->new_from_fd($srv->memfd));
    if ($method =~ /send_wait|stream/) { 1 while $cli->send(1) }
    local $SIG{ALRM} = sub { %held = () };
    alarm_asleep;
    eval { $held{client}->$method('text') };
    like($@, qr/^Attempted to use a destroyed/, "$method: a handler that takes it out of a hash");
}

kill 9, $watchdog;
waitpid $watchdog, 0;
done_testing;
