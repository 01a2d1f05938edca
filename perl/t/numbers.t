# Arguments that should be numbers. Text in their place gives a warning, and the warning's handler may
# free the argument that is being looked at; so may a signal's handler in a wait.
use strict;
use warnings;
use Socket;
use Test::More;
use FindBin ();
use lib $FindBin::Bin;
use Asleep qw(alarm_asleep);
use Pipework::Atomic;
use Pipework::FD;
use Pipework::Pipe;
use Pipework::ReqRep;

alarm 120;

# The arguments are aliases of @args; @others are put into the memory that they leave.
my (@args, @others);

sub take_away {
    undef $_ for @args;
    @args   = ();
    @others = map { join '', 'other ', $_ } 1 .. 50;
    return;
}

# Calls the method with a text as the last argument, whose warning removes it.
sub last_is_text {
    my ($object, $method, @rest) = @_;
    my $seen = 0;
    local $SIG{__WARN__} = sub { $seen += $_[0] =~ /isn't numeric/; take_away() };
    @args = (@rest[0 .. $#rest - 1], join '', $rest[-1], ' of them');
    my $code   = ref $method ? $method : $object->can($method);
    my @result = eval { $code->(defined $object ? $object : (), @args) };
    is($seen, 1, (ref $method ? 'a function' : $method) . ': one warning');
    return wantarray ? @result : $result[-1];
}

my $srv  = Pipework::ReqRep->new(undef, 8, 4, 64);
my $cli  = Pipework::ReqRep::Client->new_from_fd($srv->memfd);
my $isrv = Pipework::ReqRep::Int->new(undef, 8, 4);
my $icli = Pipework::ReqRep::Int::Client->new_from_fd($isrv->memfd);

subtest 'reqrep: seconds' => sub {
    my $id = $cli->send('x');
    $! = 0;
    for my $call ([req_wait => 'x', 0.01], [get_wait => $id, 0.01]) {
        last_is_text($cli, @$call);
        ok($!{ETIMEDOUT}, "it waits for so long: $!");
    }
    last_is_text($cli, 'call', 'x', 0.01);
    ok(Pipework::Error->caught('TimedOut'), 'call as well');
    $srv->recv;
    ok(!last_is_text($cli, 'recv_any', 0.01), 'nothing');
    $srv->clear;
    ok(!last_is_text($srv, 'recv_wait', 0.01), 'nothing');
    ok(!last_is_text($srv, 'recv_wait_multi', 2, 0.01), 'nothing');
    ok(last_is_text($cli, $_, 'x', 0.01), "$_ sends") for qw(send_wait send_wait_notify);
    $id = $srv->recv;
    ok(last_is_text($srv, 'part', $id, 'part', 0.01), 'a part');
    $id = $srv->recv;
    ok(last_is_text($srv, 'reply', $id, 'end', 5), 'a response');
    $srv->clear;
};

subtest 'reqrep: the other numbers' => sub {
    is(last_is_text($cli, 'get', $cli->send('x')), undef, 'an id');
    is(scalar(my @got = last_is_text($srv, 'drain', 1)), 2, 'how many');
    $icli->send(5);
    my (undef, $id) = $isrv->recv;
    ok(last_is_text($isrv, 'reply', $id, 7), 'a response');
    for my $method (qw(send send_notify)) {
        ok(last_is_text($icli, $method, 8), 'a request');
        is(($isrv->recv)[0], 8, 'arrives');
    }
    my @sizes = (undef, 8, 4, 64, 4096, oct 600);
    for my $last (3 .. $#sizes) {
        my $object = last_is_text('Pipework::ReqRep', 'new', @sizes[0 .. $last]);
        is($object->resp_slots, 4, "a size, $last");
    }
    my $object = last_is_text('Pipework::ReqRep::Int', 'new', @sizes[0 .. 2]);
    is($object->resp_slots, 4, 'a size of a segment for numbers');
};

subtest 'pipes' => sub {
    my ($r, $w) = Pipework::Atomic->pair;
    for my $method (qw(recv next_item)) {
        last_is_text($r, $method, 0.01);
        ok(Pipework::Error->caught('TimedOut'), 'it waits for so long');
    }
    is(last_is_text($w, 'resize', 8192), 8192, 'a size');
    ($r, $w) = Pipework::Pipe->pair(capacity => 64);
    last_is_text($r, 'recv', max => 3, timeout => 0.01);
    ok($!{ETIMEDOUT}, 'recv');
    is(last_is_text($w, 'send', 'data', 0.01), 4, 'send');
    is(last_is_text($r, 'recv', max => 3), 'dat', 'so many bytes');
    pipe my $from, my $to;
    is(last_is_text($r, 'copy_to_fd', fileno $to, length => 1, timeout => 0.01), 1, 'copy_to_fd');
    last_is_text($w, 'copy_from_fd', fileno $from, length => 2, timeout => 0.01);
    ok($!{ETIMEDOUT}, 'copy_from_fd');
};

subtest 'descriptors' => sub {
    pipe my $r, my $w;
    pipe my $nobody, my $away;
    my ($fd, $to) = (fileno $r, fileno $away);
    for my $call (
        [read_full => $fd, 'buffer', 5, 0.01], [slurp => $fd, undef, 0.01],
        [copy_all => $fd, $to, 5, 0.01], [splice_all => $fd, $to, 5, 0.01],
    ) {
        my ($name, @rest) = @$call;
        $! = 0;
        last_is_text(undef, Pipework::FD->can($name), @rest);
        ok($!{ETIMEDOUT}, "$name: $!");
    }
    my $list = pack 'iss', $fd, POLLIN(), 0;
    is(last_is_text(undef, \&Pipework::FD::poll, $list, 0.01), 0, 'poll');
    is(last_is_text(undef, \&Pipework::FD::write_all, fileno $w, 'data', 0.01), 4, 'write_all');
    is(last_is_text(undef, \&Pipework::FD::sysread, $fd, my $buffer, 4), 4, 'sysread');
    socketpair my $one, my $other, AF_UNIX, SOCK_DGRAM, 0;
    my @sent = (fileno $one, ['datagram'], 0.01);
    is(last_is_text(undef, \&Pipework::FD::send_many, @sent), 1, 'send_many');
    my $inbox = Pipework::FD::Inbox->new(2, 100);
    is(last_is_text($inbox, 'recv', fileno $other, 0.01), 1, 'Inbox');
};

sub POLLIN { 1 }

subtest 'a signal takes the buffer away' => sub {
    my ($r, $w) = Pipework::Pipe->pair(capacity => 64);
    pipe my $from, my $to;
    $to->autoflush(1);
    for my $call (
        [Pipework::Pipe->can('sysread'), sub { $w->send('abc') }, $r, 5, 3],
        [Pipework::Pipe->can('read'), sub { $w->send('abc') }, $r, 5, 3],
        [Pipework::FD->can('read_full'), sub { print $to 'abc' }, fileno $from, 5, 3],
    ) {
        my ($code, $write, @rest) = @$call;
        local $SIG{ALRM} = sub { @args = (); take_away(); $write->() };
        @args = @rest;
        alarm_asleep;
        is(&$code(@args), 3, 'it reads');
        is_deeply([grep { !/^other/ } @others], [], 'and not into another variable');
    }
};

subtest 'a number that takes itself away' => sub {
    my $size = Clearing->new;
    @args = ($size);
    undef $size;
    is(&Pipework::FD::SV(@args), '', 'SV');
    is_deeply(\@args, [], 'it has');
};

subtest 'an object is the number that it says it is' => sub {
    my $half = Clearing->new(0.05);
    my ($r, $w) = Pipework::Pipe->pair;
    $! = 0;
    is($r->recv(max => 1, timeout => $half), undef, 'seconds');
    ok($!{ETIMEDOUT}, 'and not what it is as a text');
};

package Clearing {
    use overload '0+' => sub { @args = (); $_[0][0] // 10 }, '""' => sub { 'for ever' };
    sub new { my ($class, @value) = @_; bless [@value], $class }
}

done_testing;
