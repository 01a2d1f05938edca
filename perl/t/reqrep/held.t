# Arguments with a FETCH that removes the other arguments from their array.
use strict;
use warnings;
use Test::More;
use Time::HiRes qw(time);
use Pipework::ReqRep;

alarm 120;
my (@args, @others);

package Emptying {
    sub TIESCALAR { bless [$_[1]], $_[0] }

    # Memory that was freed is used for other values.
    sub FETCH {
        @args = ();
        push @others, map { "other $_" } 1 .. 30;
        return $_[0][0];
    }
}

# Fetching the first one empties the array, which holds the only references to the others.
sub args {
    my ($first, @rest) = @_;
    @args = (undef, @rest);
    tie $args[0], 'Emptying', $first;
    return;
}

my @seen;
local $SIG{__WARN__} = sub { push @seen, @_ };
my $srv = Pipework::ReqRep->new(undef, 8, 4, 64);
my $cli = Pipework::ReqRep::Client->new_from_fd($srv->memfd);

# A request that was received, and its response.
sub answered {
    my ($answer) = @_;
    my $sent = $cli->send('x');
    my (undef, $id) = $srv->recv;
    args($id, join '', 'ans', 'wer');
    $answer->();
    return $cli->get_wait($sent, 5);
}

is(answered(sub { $srv->reply($args[0], $args[1]) }), 'answer', 'reply');
answered(sub { $srv->fail($args[0], $args[1]) });
is(Pipework::reason(), 'answer', 'fail');
{
    my $stream = $cli->stream('x');
    my (undef, $id) = $srv->recv;
    args($id, join '', 'pa', 'rt');
    $srv->part($args[0], $args[1]);
    is($stream->next, 'part', 'part');
    $srv->reply($id, 'end');
}
{
    # All slots are in use, and no request waits.
    my @sent = map { $cli->send($_) } 1 .. 4;
    $srv->drain;
    my %waits = (
        send_wait       => sub { $cli->send_wait($args[0], $args[1]) },
        req_wait        => sub { $cli->req_wait($args[0], $args[1]) },
        get_wait        => sub { $cli->get_wait($args[0], $args[1]) },
        recv_wait_multi => sub { $srv->recv_wait_multi($args[0], $args[1]) },
    );
    for my $name (sort keys %waits) {
        args($name eq 'get_wait' ? $sent[0] : 3, 0.25);
        my $begun = time;
        $! = 0;
        $waits{$name}->();
        ok($!{ETIMEDOUT}, "$name: $!");
        cmp_ok(time - $begun, '>', 0.2, 'after as many seconds as were said');
    }
}

my @four = (8, 4, 64);
my %make = (
    'ReqRep->new' => sub { args(undef, @four); Pipework::ReqRep->new(@args[0 .. 3]) },
    'ReqRep->new_memfd' => sub { args('n', @four); Pipework::ReqRep->new_memfd(@args[0 .. 3]) },
    'Int->new' => sub { args(undef, @four); Pipework::ReqRep::Int->new(@args[0 .. 2]) },
    'Int->new_memfd' => sub { args('n', @four); Pipework::ReqRep::Int->new_memfd(@args[0 .. 2]) },
);
for my $name (sort keys %make) {
    my $object = eval { $make{$name}->() };
    is($object && join(' ', $object->capacity, $object->resp_slots), '8 4', $name) or diag $@;
}
is_deeply(\@seen, [], 'no warnings');

done_testing;
