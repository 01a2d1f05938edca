use strict;
use warnings;
use Test::More;
use Fcntl;
use File::Temp qw(tempdir);
use FindBin ();
use lib "$FindBin::Bin/..";
use IO::Handle;
use Loopback;
use Socket qw(:DEFAULT SOMAXCONN);

BEGIN { alarm 120 }

# The prototypes of the built-in functions, by which programs are parsed.
my %prototype = (
    socket => '$$$$', socketpair => '$$$$$', shutdown => '$$', bind => '$$', listen => '$$',
    accept => '$$', connect => '$$', getsockopt => '$$$', setsockopt => '$$$$', getpeername => '$',
    getsockname => '$', sysopen => '$$$@', sysseek => '$$$', pipe => '$$', close => '$',
    recv => '$$$$', send => '$$$@', sysread => '$\\$$@', syswrite => '$$@', stat => '$',
    lstat => '$', fcntl => '$$$', ioctl => '$$$', readline => '$', fileno => '$',
);
{
    package ByDefault;
    require Pipework::FD::DWIM;
    Pipework::FD::DWIM->import;
    package ByTag;
    Pipework::FD::DWIM->import(':all');
}
for my $name (sort keys %prototype) {
    no strict 'refs';
    is(prototype("Pipework::FD::DWIM::$name"), $prototype{$name}, "$name: its prototype");
    ok(defined &{"${_}::$name"}, "$name: exported $_") for qw(ByDefault ByTag);
}
is_deeply([sort @Pipework::FD::DWIM::EXPORT], [sort keys %prototype], 'and no others');
ok(eval { Pipework::FD::DWIM->VERSION('v0.3.0'); 1 }, 'versions of the original');

use Pipework::FD::DWIM;
my $folder = tempdir(CLEANUP => 1);

# ---------------------------------------------------------------- files, both ways

for my $kind (qw(descriptor handle)) {
    my $file = $kind eq 'handle' ? IO::Handle->new : undef;
    ok(defined sysopen($file, "$folder/$kind", O_CREAT | O_RDWR), "$kind: sysopen");
    is(ref $file ? 'handle' : 'descriptor', $kind, 'of that kind');
    is(syswrite($file, 'hello world'), 11, 'syswrite');
    is(syswrite($file, 'hello world', 5), 5, 'with a length');
    is(syswrite($file, 'hello world', 5, 6), 5, 'and an offset');
    ok(defined sysseek($file, 0, 0), 'sysseek');
    is(sysread($file, my $buffer, 11), 11, 'sysread');
    is($buffer, 'hello world', 'into the variable');
    is(sysread($file, $buffer, 5, 5), 5, 'with an offset');
    is($buffer, 'hellohello', 'there');
    is((stat $file)[7], 21, 'stat');
    is_deeply([stat $file], [CORE::stat "$folder/$kind"], 'all of it');
    is_deeply([lstat $file], [CORE::stat "$folder/$kind"], 'lstat');
    ok(fcntl($file, F_GETFL, 0) & O_RDWR, 'fcntl');
    is(fileno($file), ref $file ? CORE::fileno($file) : $file, 'fileno');
    sysseek $file, 0, 0;
    {
        local $/;
        is(readline($file), 'hello worldhelloworld', 'readline');
    }
    is(close($file), 1, 'close');
    ok(!defined stat($file), 'is closed') if $kind eq 'descriptor';
}
is_deeply([stat "$folder/handle"], [CORE::stat "$folder/handle"], 'stat of a path');
is(fileno(*STDIN), 0, 'a glob is a handle');
{
    # The operator is the function.
    CORE::open my $in, '<', \"one\ntwo\nthree\n" or die $!;
    is(<$in>, "one\n", 'a line of a handle');
    is_deeply([<$in>], ["two\n", "three\n"], 'the others');
    CORE::open my $saved, '<&', \*STDIN or die $!;
    CORE::open STDIN, '<', "$folder/handle" or die $!;
    is(<STDIN>, 'hello worldhelloworld', 'of a handle by its name');
    CORE::open STDIN, '<&', $saved or die $!;
}
is_deeply([stat *STDIN], [CORE::stat STDIN], 'stat of one');

# ---------------------------------------------------------------- sockets, both ways

SKIP: for my $kind (qw(descriptor handle)) {
    skip no_loopback(), 1 if no_loopback();
    my ($listener, $client, $server, $one, $other, $r, $w) =
        $kind eq 'handle' ? map { IO::Handle->new } 1 .. 7 : ();
    ok(defined socket($listener, AF_INET, SOCK_STREAM, 0), "$kind: socket");
    ok(setsockopt($listener, SOL_SOCKET, SO_REUSEADDR, 1), 'setsockopt');
    ok(unpack('i', getsockopt $listener, SOL_SOCKET, SO_REUSEADDR), 'getsockopt');
    ok(bind($listener, pack_sockaddr_in(0, INADDR_LOOPBACK)), 'bind');
    ok(listen($listener, SOMAXCONN), 'listen');
    ok(defined socket($client, AF_INET, SOCK_STREAM, 0), 'socket');
    ok(connect($client, getsockname $listener), 'connect');
    ok(accept($server, $listener), 'accept');
    is(getpeername($server), getsockname($client), 'getpeername');
    is(send($client, 'hello', 0), 5, 'send');
    is(recv($server, my $buffer, 100, 0), '', 'recv');
    is($buffer, 'hello', 'the bytes');
    is(shutdown($client, 1), 1, 'shutdown');
    is(sysread($server, $buffer, 1), 0, 'the end');
    ok(defined socketpair($one, $other, AF_UNIX, SOCK_STREAM, 0), 'socketpair');
    ok(defined pipe($r, $w), 'pipe');
    syswrite $w, 'four';
    my $size = pack 'i', 0;
    ok(ioctl($r, 0x541b, $size), 'ioctl');
    is(unpack('i', $size), 4, 'FIONREAD');
    is(close($_), 1, 'close') for $listener, $client, $server, $one, $other, $r, $w;
}

# ---------------------------------------------------------------- constants

use Pipework::FD::Constants;
my %poll = (
    POLLIN => 1, POLLPRI => 2, POLLOUT => 4, POLLERR => 8, POLLHUP => 16, POLLNVAL => 32,
    POLLRDNORM => 64, POLLRDBAND => 128, POLLWRNORM => 256, POLLWRBAND => 512,
    EVFILT_READ => -1, EV_ADD => 1, NOTE_WRITE => 2,
    POLLFD_PACKER => '(iss)*', POLLFD_PACKER_ONCE => 'iss',
);
for my $name (sort keys %poll) {
    no strict 'refs';
    is(&$name(), $poll{$name}, $name);
}
done_testing;
