use strict;
use warnings;
use Test::More;
use Errno qw(EAGAIN EINPROGRESS EINVAL EMFILE ECONNREFUSED EBADF ENOTSOCK);
use Fcntl;
use File::Temp qw(tempdir);
use FindBin ();
use lib "$FindBin::Bin/..";
use Loopback;
use Processes;
use Socket qw(
    :DEFAULT SOCK_NONBLOCK SOCK_CLOEXEC IPPROTO_TCP TCP_NODELAY MSG_TRUNC
    pack_sockaddr_in6 IN6ADDR_LOOPBACK
);
use Pipework::FD;

plan skip_all => no_loopback() if no_loopback();
alarm 120;
my $folder = tempdir(CLEANUP => 1);

sub listener {
    my ($flags) = @_;
    Pipework::FD::socket(my $fd, AF_INET, SOCK_STREAM | $flags, 0) // die $!;
    is(Pipework::FD::setsockopt($fd, SOL_SOCKET, SO_REUSEADDR, 1), 1, 'setsockopt');
    is(Pipework::FD::bind($fd, pack_sockaddr_in(0, INADDR_LOOPBACK)), 1, 'bind');
    is(Pipework::FD::listen($fd, 100), 1, 'listen');
    return $fd;
}

sub client_of {
    Pipework::FD::socket(my $fd, AF_INET, SOCK_STREAM, 0) // die $!;
    is(Pipework::FD::connect($fd, Pipework::FD::getsockname($_[0])), 1, 'connect');
    return $fd;
}

sub has { return Pipework::FD::fcntl($_[0], $_[1], 0) & $_[2] ? 1 : 0 }

# ---------------------------------------------------------------- one connection

my $listener = listener(0);
my $client   = client_of($listener);
my $peer     = Pipework::FD::accept(my $server, $listener);
is($peer, Pipework::FD::getsockname($client), 'accept returns the packed peer');
is($peer, Pipework::FD::getpeername($server), 'as getpeername does');
is(length $peer, 16, 'of the length of its family');
is(has($server, F_GETFD, FD_CLOEXEC), 1, 'close-on-exec');
is(has($server, F_GETFL, O_NONBLOCK), 0, 'and it blocks');

is(Pipework::FD::send($client, 'hello', 0), 5, 'send');
is(Pipework::FD::recv($server, my $fresh, 100, 0), '', 'recv: "" on a connection');
is($fresh, 'hello', 'into a fresh variable');
is(Pipework::FD::send($client, 'world'), 5, 'send without flags');
my $buffer = 'x' x 1000;
is(Pipework::FD::recv($server, $buffer, 3, undef), '', 'flags may be undef');
is($buffer, 'wor', 'the buffer is cut');
is(Pipework::FD::recv($server, $buffer, 3, MSG_PEEK), '', 'flags');
is($buffer, 'ld', 'are used');
is(Pipework::FD::sockatmark($server), 0, 'sockatmark');
is(Pipework::FD::shutdown($client, 1), 1, 'shutdown');
Pipework::FD::recv($server, $buffer, 3, 0);
is(Pipework::FD::recv($server, $buffer, 3, 0), '', 'the end');
is($buffer, '', 'is empty');
is(Pipework::FD::shutdown($client, 99), undef, 'shutdown fails');
is($! + 0, EINVAL, 'EINVAL');
{
    my @warnings;
    local $SIG{__WARN__} = sub { push @warnings, $_[0] };
    is(Pipework::FD::send($server, undef, 0), undef, 'send needs data');
    like($warnings[0], qr/^Pipework::FD::send called with use of uninitialized value/,
        'and says so');
}

# Options: a packed value, an integer, one in a string, undef.
is(unpack('i', Pipework::FD::getsockopt($server, SOL_SOCKET, SO_TYPE)), SOCK_STREAM, 'getsockopt');
for my $set ([1, 1], [0, 0], [pack('i', 1), 1], [undef, 0], ['1', 1], ['0', 0], [1.0, 1]) {
    my ($value, $is) = @$set;
    is(Pipework::FD::setsockopt($server, IPPROTO_TCP, TCP_NODELAY, $value), 1, 'setsockopt');
    is(unpack('i', Pipework::FD::getsockopt($server, IPPROTO_TCP, TCP_NODELAY)), $is, 'sets it');
}
is(Pipework::FD::setsockopt($server, SOL_SOCKET, SO_LINGER, pack 'ii', 1, 7), 1, 'a struct');
is_deeply([unpack 'ii', Pipework::FD::getsockopt($server, SOL_SOCKET, SO_LINGER)], [1, 7],
    'and back');
is(Pipework::FD::getsockopt($server, 12345, 1), undef, 'getsockopt fails');
is(Pipework::FD::setsockopt($server, 12345, 1, 1), undef, 'setsockopt fails');

# Failures.
is(Pipework::FD::socket(my $none, 999, SOCK_STREAM, 0), undef, 'socket fails');
is($none, undef, 'and sets nothing');
is(Pipework::FD::getpeername($listener), undef, 'getpeername of a listener');
is(Pipework::FD::connect($client, ''), undef, 'connect to nothing');
is(Pipework::FD::bind($client, ''), undef, 'bind to nothing');
is(Pipework::FD::listen(0, 1), undef, 'listen');
is(Pipework::FD::accept(my $new, 0), undef, 'accept');
is($! + 0, ENOTSOCK, 'not of a socket');
Pipework::FD::close($_) for $client, $server;
is(Pipework::FD::accept($new, $client), undef, 'of nothing');
is($! + 0, EBADF, 'EBADF');
Pipework::FD::socket(my $late, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
my $connected = Pipework::FD::connect($late, Pipework::FD::getsockname($listener));
ok($connected || $! == EINPROGRESS, 'connect without waiting');
Pipework::FD::accept($server, $listener);
Pipework::FD::close($_) for $late, $server;

# Other families.
SKIP: {
    Pipework::FD::socket(my $six, AF_INET6, SOCK_STREAM, 0) // skip 'no IPv6', 1;
    defined Pipework::FD::bind($six, pack_sockaddr_in6(0, IN6ADDR_LOOPBACK)) or skip 'no IPv6', 1;
    is(length Pipework::FD::getsockname($six), 28, 'IPv6');
    Pipework::FD::close($six);
}
{
    Pipework::FD::socket(my $fd, AF_UNIX, SOCK_STREAM, 0);
    is(Pipework::FD::sysbind($fd, pack_sockaddr_un("$folder/socket")), 1, 'sysbind');
    is(unpack_sockaddr_un(Pipework::FD::getsockname($fd)), "$folder/socket", 'a Unix address');
    Pipework::FD::listen($fd, 1);
    Pipework::FD::socket(my $other, AF_UNIX, SOCK_STREAM, 0);
    is(Pipework::FD::connect($other, pack_sockaddr_un("$folder/socket")), 1, 'connect');
    my $peer = Pipework::FD::accept(my $accepted, $fd);
    is(unpack('S', $peer), AF_UNIX, 'a peer without a name');
    Pipework::FD::close($_) for $fd, $other, $accepted;
}

# Datagrams.
{
    my ($one, $other);
    for my $end ($one, $other) {
        Pipework::FD::socket($end, AF_INET, SOCK_DGRAM, 0);
        Pipework::FD::bind($end, pack_sockaddr_in(0, INADDR_LOOPBACK));
    }
    my $to = Pipework::FD::getsockname($other);
    is(Pipework::FD::send($one, 'a datagram', 0, $to), 10, 'send with an address');
    is(Pipework::FD::recv($other, $buffer, 100, 0), Pipework::FD::getsockname($one),
        'recv returns the sender');
    is($buffer, 'a datagram', 'and sets the buffer');
    Pipework::FD::send($one, '', 0, $to);
    ok(defined Pipework::FD::recv($other, $buffer, 100, 0), 'an empty one');
    is($buffer, '', 'is empty');
    Pipework::FD::send($one, 'longer than that', 0, $to);
    ok(defined Pipework::FD::recv($other, $buffer, 6, MSG_TRUNC), 'one that is cut');
    is($buffer, 'longer', 'is as long as it was asked for');
    is(Pipework::FD::send($one, 'x', 0), undef, 'send without an address');
    Pipework::FD::close($_) for $one, $other;
}
{
    Pipework::FD::socketpair(my $one, my $other, AF_UNIX, SOCK_DGRAM, 0);
    is(Pipework::FD::send($one, 'data', 0), 4, 'a pair');
    is(Pipework::FD::recv($other, $buffer, 100, 0), '', 'has no names');
    is($buffer, 'data', 'only data');
    Pipework::FD::close($_) for $one, $other;
}

# ---------------------------------------------------------------- accept4

$client = client_of($listener);
{
    local $^F = 1000;
    ok(Pipework::FD::accept4($new, $listener, SOCK_CLOEXEC), 'accept4');
    is(has($new, F_GETFD, FD_CLOEXEC), 1, 'its flags alone decide');
}
Pipework::FD::close($_) for $client, $new;
$client = client_of($listener);
ok(Pipework::FD::accept4($new, $listener, Pipework::FD::SOCK_NONBLOCK), 'accept4');
is(has($new, F_GETFD, FD_CLOEXEC), 0, 'without close-on-exec');
is(has($new, F_GETFL, O_NONBLOCK), 1, 'and without waiting');
Pipework::FD::close($_) for $client, $new;

# ---------------------------------------------------------------- accept_multiple

# More than one batch. That the listener blocks must not matter.
for my $kind (['one that blocks', 0], ['one that does not', SOCK_NONBLOCK]) {
    my ($name, $flags) = @$kind;
    my $listener = listener($flags);
    my (@new, @peers);
    is(Pipework::FD::accept_multiple(@new, @peers, $listener), undef, "$name: undef if no connection waits");
    is($! + 0, EAGAIN, 'EAGAIN');
    my @clients = map { client_of($listener) } 1 .. 70;
    @new   = ('first');
    @peers = ('first');
    is(Pipework::FD::accept_multiple(@new, @peers, $listener), 70, "$name: how many");
    is($! + 0, EAGAIN, 'and $! says why not more');
    is("@new[0, 1] $peers[0]", "first $new[1] first", 'they are appended');
    shift @new;
    shift @peers;
    is(@new, 70, 'descriptors');
    is_deeply(\@peers, [map { Pipework::FD::getsockname($_) } @clients], 'and peers');
    is(has($new[0], F_GETFL, O_NONBLOCK), 1, 'they do not block');
    is(has($new[0], F_GETFD, FD_CLOEXEC), 1, 'close-on-exec');
    Pipework::FD::close($_) for @clients, @new;
    push @clients, client_of($listener);
    {
        local $^F = 1000;
        my @more;
        is(&Pipework::FD::accept_multiple(\@more, \@peers, $listener), 1, 'with references');
        is(has($more[0], F_GETFD, FD_CLOEXEC), 0, 'close-on-exec goes by $^F');
        Pipework::FD::close($_) for @more, $clients[-1];
    }
    Pipework::FD::close($listener);
}
ok(!eval { &Pipework::FD::accept_multiple(1, [], 0); 1 }, 'no arrays');
like($@, qr/^Pipework::FD::accept_multiple takes two arrays and a listener at/, 'it says');
{
    my (@new, @peers);
    is(Pipework::FD::accept_multiple(@new, @peers, 0), undef, 'no socket');
    is($! + 0, ENOTSOCK, 'ENOTSOCK');
    my @clients = map { client_of($listener) } 1, 2;
    # With no descriptor left but one.
    my $highest = Pipework::FD::dup(0);
    Pipework::FD::close($highest);
    my $pid = child {
        require POSIX;
        my @limit = (7, $highest + 1, $highest + 1);
        syscall 160, $limit[0], pack 'QQ', @limit[1, 2];    # setrlimit(RLIMIT_NOFILE)
        my $count = Pipework::FD::accept_multiple(@new, @peers, $listener);
        $count == 1 && $! == EMFILE ? 0 : 1;
    };
    is(status($pid), 0, 'no descriptors: what there was, and EMFILE');
    Pipework::FD::close($_) for @clients;
}

# ---------------------------------------------------------------- sendfile

{
    Pipework::FD::socketpair(my $one, my $other, AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    Pipework::FD::sysopen(my $file, "$folder/data", O_CREAT | O_RDWR);
    Pipework::FD::syswrite($file, '0123456789' x 100_000);
    is(Pipework::FD::sendfile($one, $file, 10, 5), 10, 'sendfile');
    is(Pipework::FD::sysseek($file, 0, 1), 1_000_000, 'leaves the position');
    Pipework::FD::sysread($other, $buffer, 100);
    is($buffer, '5678901234', 'from there');
    is(Pipework::FD::sendfile($one, $file, 100, 999_990), 10, 'what was moved, not what was asked');
    my $moved = Pipework::FD::sendfile($one, $file, 1_000_000, 0);
    ok($moved && $moved < 1_000_000, 'what there was space for');
    is(Pipework::FD::sendfile($one, $file, 1_000_000, 0), undef, 'and then');
    is($! + 0, EAGAIN, 'EAGAIN');
    is(Pipework::FD::sendfile($one, $file, 10, 1_000_000), 0, 'nothing at the end');
    Pipework::FD::close($_) for $one, $other, $file;
}
done_testing;
