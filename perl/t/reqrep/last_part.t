# A reply after a part that the client has not taken: it waits for it, as a part does.
use strict;
use warnings;
use Test::More;
use POSIX ();
use Time::HiRes qw(time);
use FindBin ();
use lib "$FindBin::Bin/..";
use Asleep qw(alarm_asleep);
use Pipework::ReqRep;

alarm 120;
my $srv = Pipework::ReqRep->new(undef, 8, 4, 64);
my $cli = Pipework::ReqRep::Client->new_from_fd($srv->memfd);

# A stream that has a part, and the id of its request.
sub begun {
    my $stream = $cli->stream('x', 20);
    my (undef, $id) = $srv->recv;
    ok($srv->part($id, 'first', 1), 'a part');
    return ($stream, $id);
}

sub rest {
    my ($stream) = @_;
    my @parts;
    while (defined(my $part = $stream->next)) { push @parts, $part }
    return "@parts";
}

# Without a timeout they wait ten seconds, in children, while the other tests run.
my @patient;
for my $method (qw(part reply)) {
    defined(my $pid = fork) or die "fork: $!";
    push @patient, [$method, $pid];
    next if $pid;
    my $own    = Pipework::ReqRep->new(undef, 8, 4, 64);
    my $client = Pipework::ReqRep::Client->new_from_fd($own->memfd);
    my $stream = $client->stream('x', 20);
    my (undef, $id) = $own->recv;
    my $begun = time;
    my $fine  = $own->part($id, 'first') && $own->$method($id, 'second') eq '' && $!{ETIMEDOUT};
    my $passed = time - $begun;
    # The request is given up: its client gets an exception.
    $fine &&= $passed > 9.9 && $passed < 60 && !$own->is_wanted($id);
    POSIX::_exit($fine && !eval { $stream->next; 1 } && $@->kind eq 'Failed' ? 0 : 1);
}

{   # A handler that dies.
    my ($stream, $id) = begun();
    local $SIG{ALRM} = sub { die "signal\n" };
    alarm_asleep;
    my $died = !eval { $srv->reply($id, 'lost'); 1 };
    ok($died && $@ eq "signal\n", 'a handler runs while reply waits, and may die');
    is($srv->is_wanted($id), 1, 'the request is still there');
    is($stream->next, 'first', 'its part, too');
    is($srv->reply($id, 'second'), 1, 'and it can be answered');
    is(rest($stream), 'second', 'which arrives');
}
{   # A handler that lets the client go on, and changes what is sent.
    my ($stream, $id) = begun();
    my @got;
    my $data = join '', 'se', 'cond';
    local $SIG{ALRM} = sub { push @got, $stream->next; $data = 'other ' x 3 };
    alarm_asleep;
    is($srv->reply($id, $data), 1, 'the reply goes when the part was taken');
    is("@got " . rest($stream), 'first second', 'as it was');
}
{   # A handler that answers itself, and one that destroys the server.
    my ($stream, $id) = begun();
    local $SIG{ALRM} = sub { $srv->fail($id, 'no') };
    alarm_asleep;
    is($srv->reply($id, 'late'), '', 'the handler has given it up');
    is(Pipework::error(), "reqrep reply: the ticket or handle is no longer valid", 'says the error');

    my $other = Pipework::ReqRep->new_from_fd($srv->memfd);
    $stream = $cli->stream('x', 20);
    my (undef, $its) = $other->recv;
    $other->part($its, 'first');
    local $SIG{ALRM} = sub { undef $other };
    alarm_asleep;
    ok(!eval { $other->reply($its, 'late'); 1 }, 'the object was destroyed');
    like($@, qr/^Attempted to use a destroyed Pipework::ReqRep object/, 'which is said');
}
{   # So many seconds.
    my ($stream, $id) = begun();
    is($srv->reply($id, 'second', 0), undef, 'no time');
    my $begun = time;
    is($srv->reply($id, 'second', 0.3), undef, 'undef when the time is over');
    ok($!{ETIMEDOUT}, 'with ETIMEDOUT');
    cmp_ok(time - $begun, '>', 0.25, 'not before');
    is($stream->next, 'first', 'its part');
    is($srv->reply($id, 'second', 5), 1, 'in time');
    is(rest($stream), 'second', 'the rest');
}
{   # A client that has gone.
    my ($stream, $id) = begun();
    undef $stream;
    is($srv->reply($id, 'second'), '', 'reply to a client that has gone returns false');
    is_deeply([map { $srv->audit->{$_} } qw(taken in_parts)], [0, 0], 'and nothing is left');
}
{   # Another object of this process answers nothing, and says why.
    my $other = Pipework::ReqRep->new_from_fd($srv->memfd);
    my $sent  = $cli->send('x');
    my (undef, $id) = $srv->recv;
    for my $attached (0, 1) {
        is($other->reply($id, 'y'), '', 'it is not of this object');
        ok($!{ESTALE}, 'ESTALE');
        is(Pipework::error() + 0, 6, 'Stale');
        $other->recv;
    }
    is($srv->reply($id, 'z'), 1, 'the other one has it');
    is($cli->get($sent), 'z', 'still');
}
for (@patient) {
    my ($method, $pid) = @$_;
    waitpid $pid, 0;
    is($?, 0, "$method gives up a client that takes nothing for ten seconds");
}

done_testing;
