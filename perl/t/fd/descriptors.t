use strict;
use warnings;
use Test::More;
use Errno qw(EBADF ENOENT EINVAL);
use Fcntl;
use File::Temp qw(tempdir);
use Socket qw(:DEFAULT SOCK_NONBLOCK SOCK_CLOEXEC);
use Pipework::FD;

alarm 120;
my $folder = tempdir(CLEANUP => 1);

sub close_on_exec { return Pipework::FD::fcntl($_[0], F_GETFD, 0) & FD_CLOEXEC ? 1 : 0 }

# Every function that takes a descriptor, with something else: one warning, EBADF, undef.
my ($out, @new, @peers);
my %calls = (
    bind        => sub { Pipework::FD::bind($_[0], undef) },
    listen      => sub { Pipework::FD::listen($_[0], undef) },
    accept      => sub { Pipework::FD::accept($out, $_[0]) },
    accept4     => sub { Pipework::FD::accept4($out, $_[0], undef) },
    accept_multiple => sub { Pipework::FD::accept_multiple(@new, @peers, $_[0]) },
    connect     => sub { Pipework::FD::connect($_[0], undef) },
    shutdown    => sub { Pipework::FD::shutdown($_[0], undef) },
    sockatmark  => sub { Pipework::FD::sockatmark($_[0]) },
    getsockopt  => sub { Pipework::FD::getsockopt($_[0], undef, undef) },
    setsockopt  => sub { Pipework::FD::setsockopt($_[0], undef, undef, undef) },
    getpeername => sub { Pipework::FD::getpeername($_[0]) },
    getsockname => sub { Pipework::FD::getsockname($_[0]) },
    send        => sub { Pipework::FD::send($_[0], undef, undef, undef) },
    recv        => sub { Pipework::FD::recv($_[0], $out, undef, undef) },
    sendfile    => sub { Pipework::FD::sendfile($_[0], 0, undef, undef) },
    openat      => sub { Pipework::FD::openat($_[0], undef, undef, undef) },
    mkfifoat    => sub { Pipework::FD::mkfifoat($_[0], undef, undef) },
    sysseek     => sub { Pipework::FD::sysseek($_[0], undef, undef) },
    dup         => sub { Pipework::FD::dup($_[0]) },
    dup2        => sub { Pipework::FD::dup2($_[0], 1) },
    close       => sub { Pipework::FD::close($_[0]) },
    sysread     => sub { Pipework::FD::sysread($_[0], 'read-only', undef) },
    pread       => sub { Pipework::FD::pread($_[0], 'read-only', undef, undef) },
    syswrite    => sub { Pipework::FD::syswrite($_[0], undef) },
    pwrite      => sub { Pipework::FD::pwrite($_[0], undef, undef, undef) },
    fcntl       => sub { Pipework::FD::fcntl($_[0], undef, undef) },
    ioctl       => sub { Pipework::FD::ioctl($_[0], undef, undef) },
    readline    => sub { local $/; Pipework::FD::readline($_[0]) },
);
my @other_names = (
    [sysbind   => bind     => sub { Pipework::FD::sysbind($_[0], undef) }],
    [sysread3  => sysread  => sub { Pipework::FD::sysread3($_[0], 'read-only', undef) }],
    [sysread4  => sysread  => sub { Pipework::FD::sysread4($_[0], 'read-only', undef, undef) }],
    [syswrite2 => syswrite => sub { Pipework::FD::syswrite2($_[0], undef) }],
    [syswrite3 => syswrite => sub { Pipework::FD::syswrite3($_[0], undef, undef) }],
    [syswrite4 => syswrite => sub { Pipework::FD::syswrite4($_[0], undef, undef, undef) }],
    [sysfcntl  => fcntl    => sub { Pipework::FD::sysfcntl($_[0], undef, undef) }],
    [sysfctrl  => fcntl    => sub { Pipework::FD::sysfctrl($_[0], undef, undef) }],
    [sysioctl  => ioctl    => sub { Pipework::FD::sysioctl($_[0], undef, undef) }],
);
for my $call ((map { [$_, $_, $calls{$_}] } sort keys %calls), @other_names) {
    my ($name, $called, $sub) = @$call;
    for my $wrong (undef, '', 'nine', '9x', 3.5, [], \*STDIN, *STDIN, 'inf', !!0) {
        my @warnings;
        local $SIG{__WARN__} = sub { push @warnings, $_[0]; $! = ENOENT };
        $! = 0;
        my @result = $sub->($wrong);
        my $shown = $wrong // 'undef';
        is_deeply([\@result, $! + 0], [[undef], EBADF], "$name($shown): undef and EBADF");
        is(@warnings, 1, "$name($shown): one warning");
        my $words = "Pipework::FD::$called called with something other than a file descriptor";
        like($warnings[0], qr/^$words at \S+descriptors\.t line \d+\.$/, "$name($shown): so");
    }
    my @warnings;
    local $SIG{__WARN__} = sub { push @warnings, grep { !/uninitialized/ } $_[0] };
    for my $closed (-1, 2**31, 2**40, ~0) {
        next if $name =~ /^(?:openat|mkfifoat)$/;
        # Only then does the buffer matter.
        my $result = eval { $sub->($closed) };
        ok(!defined $result || $result eq '0', "$name($closed): none");
    }
    is_deeply(\@warnings, [], "$name: a number is a descriptor, though not an open one");
}
{
    my @warnings;
    local $SIG{__WARN__} = sub { push @warnings, $_[0] };
    is(Pipework::FD::dup2(0, 'x'), undef, 'dup2: the other one');
    is(Pipework::FD::sendfile(0, 'x', 1, 1), undef, 'sendfile: the other one');
    is(@warnings, 2, 'and both warn');
    Pipework::FD::dup2('x', undef);
    Pipework::FD::sendfile('', undef, undef, undef);
    is(@warnings, 4, 'once, if neither is one');
    is_deeply([Pipework::FD::stat([])], [], 'stat: the empty list');
    is_deeply([Pipework::FD::lstat([])], [], 'lstat: the empty list');
    like($warnings[5], qr/FD::lstat called/, 'which warns');
}

# A descriptor may be a string, or a float, or an object that is one of them.
{
    package Number;
    use overload '""' => sub { ${ $_[0] } }, fallback => 1;
}
for my $zero (0, '0', 0.0, '0.0', bless \(my $text = '0'), 'Number') {
    ok(defined Pipework::FD::fcntl($zero, F_GETFD, 0), "a descriptor as $zero");
}

# Functions that make a descriptor return and set its number, and heed $^F for close-on-exec.
my %makers = (
    socket  => sub { Pipework::FD::socket(my $fd, AF_UNIX, SOCK_STREAM, 0); $fd },
    sysopen => sub { Pipework::FD::sysopen(my $fd, '/dev/null', O_RDONLY); $fd },
    sysopen4 => sub { Pipework::FD::sysopen4(my $fd, '/dev/null', O_RDONLY, 0); $fd },
    open    => sub { Pipework::FD::open('/dev/null', O_RDONLY) },
    openat  => sub { Pipework::FD::openat(0, '/dev/null', O_RDONLY) },
    dup     => sub { Pipework::FD::dup(0) },
    dup2    => sub { Pipework::FD::dup2(0, 77) },
    mkstemp => sub { scalar Pipework::FD::mkstemp("$folder/XXXXXX") },
    pipe    => sub { Pipework::FD::pipe(my $r, my $w); Pipework::FD::close($r); $w },
    syspipe => sub { Pipework::FD::syspipe(my $r, my $w); Pipework::FD::close($w); $r },
    socketpair => sub {
        Pipework::FD::socketpair(my $one, my $other, AF_UNIX, SOCK_STREAM, 0);
        Pipework::FD::close($one);
        $other;
    },
);
for my $name (sort keys %makers) {
    my $fd = $makers{$name}->();
    cmp_ok($fd, '>', $^F, "$name makes a descriptor");
    is(close_on_exec($fd), 1, "$name: close-on-exec");
    Pipework::FD::close($fd);
    local $^F = 1000;
    $fd = $makers{$name}->();
    is(close_on_exec($fd), 0, "$name: not if \$^F is higher");
    Pipework::FD::close($fd);
}
{
    local $^F = 1000;
    Pipework::FD::socket(my $socket, AF_UNIX, SOCK_STREAM | Pipework::FD::SOCK_CLOEXEC, 0);
    is(close_on_exec($socket), 1, 'SOCK_CLOEXEC by name');
    my $file = Pipework::FD::open('/dev/null', O_RDONLY | 02000000);
    is(close_on_exec($file), 1, 'O_CLOEXEC by name');
    Pipework::FD::close($_) for $socket, $file;
}

# Outputs: fresh, defined, an element, tied; and read-only, before anything is done.
{
    package Tied;
    sub TIESCALAR { return bless {}, $_[0] }
    sub FETCH     { $_[0]{value} }
    sub STORE     { $_[0]{value} = $_[1] }
}
sub open_now { return scalar(() = glob '/proc/self/fd/*') }
tie my $tied, 'Tied';
my %hash;
my $before = open_now();
for my $output (my $fresh, my $defined = 'old', $hash{element}, $tied) {
    is(Pipework::FD::socket($output, AF_UNIX, SOCK_STREAM, 0), $output, 'socket sets its output');
    is(Pipework::FD::close($output), 1, 'and it is open');
    my $returned = Pipework::FD::sysopen($output, '/dev/null', O_RDONLY);
    is($returned, $output, 'sysopen sets its output');
    Pipework::FD::close($output);
    is(Pipework::FD::pipe($output, my $other), 1, 'pipe');
    is(Pipework::FD::close($_), 1, 'an end') for $output, $other;
    $output = 'old';
    is(Pipework::FD::socketpair($output, $other, AF_UNIX, SOCK_STREAM, 0), 1, 'socketpair');
    is(Pipework::FD::close($_), 1, 'an end') for $output, $other;
}
for my $call (
    sub { Pipework::FD::socket('', AF_UNIX, SOCK_STREAM, 0) },
    sub { Pipework::FD::socketpair(my $one, undef, AF_UNIX, SOCK_STREAM, 0) },
    sub { Pipework::FD::sysopen('', "$folder/never", O_CREAT | O_RDWR) },
    sub { Pipework::FD::pipe(my $one, '') },
    sub { Pipework::FD::accept(undef, 0) },
    sub { Pipework::FD::accept4(undef, 0, 0) },
    sub { Pipework::FD::sysread(0, 'text', 1) },
    sub { Pipework::FD::sysread4(0, undef, 1, 0) },
    sub { Pipework::FD::pread(0, 'text', 1, 0) },
    sub { Pipework::FD::recv(0, '', undef, undef) },
    sub { Pipework::FD::fcntl(0, F_GETLK, 'text') },
    sub { Pipework::FD::poll('text', 0) },
) {
    ok(!eval { $call->(); 1 }, 'read-only');
    like($@, qr/^Modification of a read-only value attempted at /, 'in these words');
}
ok(!-e "$folder/never", 'nothing was made before');
is(open_now(), $before, 'and no descriptor was lost');

# The rest.
is(Pipework::FD::close(Pipework::FD::dup(0)), 1, 'close');
{
    my $fd = Pipework::FD::dup(0);
    Pipework::FD::close($fd);
    is(Pipework::FD::close($fd), undef, 'closed already');
    is($! + 0, EBADF, 'it says');
    is(Pipework::FD::dup2($fd, $fd), undef, 'dup2 of a closed one on itself');
    is(Pipework::FD::dup2(0, 0), 0, 'dup2 of an open one on itself');
}
is(Pipework::FD::fcntl(0, F_GETFD, undef), 0, 'fcntl: 0 is 0, undef is 0');
is(Pipework::FD::fcntl(0, 99999, 0), undef, 'fcntl fails');
is($! + 0, EINVAL, 'with this');
{
    my $lock = pack 's s x4 q q i x4', F_WRLCK, 0, 0, 0, 0;
    Pipework::FD::sysopen(my $fd, "$folder/lock", O_CREAT | O_RDWR);
    is(Pipework::FD::fcntl($fd, F_GETLK, $lock), 0, 'fcntl with a string');
    is(unpack('s', $lock), F_UNLCK, 'which comes back');
    is(length $lock, 256, 'with space for the structure of the kernel');
    is(Pipework::FD::fcntl($fd, F_SETFL, O_APPEND), 0, 'a number');
    ok(Pipework::FD::fcntl($fd, F_GETFL, 0) & O_APPEND, 'was taken');
    Pipework::FD::close($fd);
}
{
    Pipework::FD::pipe(my $r, my $w);
    Pipework::FD::syswrite($w, 'four');
    my $size = '';
    is(Pipework::FD::ioctl($r, 0x541b, $size), '0 but true', 'ioctl: 0 is true');
    is(unpack('i', $size), 4, 'FIONREAD');
    is(Pipework::FD::ioctl($r, 0x5401, my $tty = ''), undef, 'ioctl fails');
    Pipework::FD::close($_) for $r, $w;
}
is(Pipework::FD::fileno(\*STDIN), 0, 'fileno of a handle');
is(Pipework::FD::fileno(*STDIN), 0, 'of a glob');
is(Pipework::FD::fileno(5), 5, 'of a descriptor');
is(prototype \&Pipework::FD::fileno, '$', 'its prototype');
is(prototype \&Pipework::FD::accept_multiple, '\@\@$', 'that of accept_multiple');

# Modules.
ok(eval { Pipework::FD->VERSION($_); 1 }, "version $_") for 'v0.3.0', '0.3.0', 'v0.3.9', '0.1.0';
ok(!eval { Pipework::FD->VERSION('v0.4.0'); 1 }, 'one that is too new');
for my $name (qw(kqueue kevent pack_kevent sv_to_pointer pointer_to_sv)) {
    no strict 'refs';
    ok(!eval { &{"Pipework::FD::$name"}(1, 2); 1 }, "$name");
    like($@, qr/^$name: Linux has no kqueue/, 'says so');
}
is(Pipework::FD::SOCK_NONBLOCK, SOCK_NONBLOCK, 'SOCK_NONBLOCK by its full name');
is(Pipework::FD::SOCK_CLOEXEC, SOCK_CLOEXEC, 'SOCK_CLOEXEC');
{
    package Importer;
    Pipework::FD->import(':all');
    Pipework::FD->import(qw(pread sendfile));
    main::ok(defined &{"Importer::$_"}, "exported: $_") for qw(
        accept accept_multiple listen socket bind connect sysopen sysopen4 close sysread sysread4
        syswrite syswrite2 syswrite3 syswrite4 mkfifo mkfifoat pipe socketpair sysseek dup dup2
        fcntl ioctl getsockopt setsockopt select poll mkstemp mktemp readline fileno pread sendfile
    );
    main::ok(!defined &Importer::open, 'and open is left to Perl');
}
{
    package Nothing;
    Pipework::FD->import;
    main::ok(!defined &Nothing::socket, 'nothing by default');
}
done_testing;
