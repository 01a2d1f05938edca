use strict;
use warnings;
use Test::More;
use Errno qw(EBADF ETIMEDOUT EPIPE EAGAIN EINVAL EFBIG EMSGSIZE EMFILE);
use Fcntl;
use File::Temp qw(tempdir);
use FindBin ();
use lib "$FindBin::Bin/..";
use Asleep qw(alarm_asleep);
use Loopback;
use Processes;
use POSIX ();
use Socket qw(:DEFAULT SOCK_NONBLOCK);
use Time::HiRes ();
use Pipework::FD;

alarm 120;
my $folder = tempdir(CLEANUP => 1);
my $large  = join '', map { chr(65 + $_ % 26) } 1 .. 1_000_000;

# In another process.
sub meanwhile {
    my ($do) = @_;
    my $pid = fork // die $!;
    return $pid if $pid;
    alarm 120;
    $do->();
    POSIX::_exit(0);
}

sub file {
    my ($name, $content) = @_;
    Pipework::FD::sysopen(my $fd, "$folder/$name", O_CREAT | O_RDWR | O_TRUNC) // die $!;
    Pipework::FD::pwrite_all($fd, $content, 0) // die $!;
    return $fd;
}

# ---------------------------------------------------------------- read_full, write_all, slurp

for my $how (0, O_NONBLOCK) {
    Pipework::FD::pipe(my $r, my $w);
    Pipework::FD::fcntl($_, F_SETFL, $how) for $r, $w;
    my $pid = meanwhile(sub {
        Pipework::FD::close($r);
        Pipework::FD::write_all($w, $large, 10) // POSIX::_exit(1);
        POSIX::_exit(0);
    });
    Pipework::FD::close($w);
    is(Pipework::FD::read_full($r, my $record, 300_000, 10), 300_000, 'read_full');
    is($record, substr($large, 0, 300_000), 'a record');
    is(Pipework::FD::slurp($r, undef, 10), substr($large, 300_000), 'slurp: the rest');
    is(Pipework::FD::read_full($r, $record, 10), 0, 'the end');
    is($record, '', 'is empty');
    is(Pipework::FD::slurp($r), '', 'slurp at the end');
    is(status($pid), 0, 'write_all');
    Pipework::FD::close($r);
}
{
    Pipework::FD::pipe(my $r, my $w);
    Pipework::FD::syswrite($w, 'half');
    is(Pipework::FD::read_full($r, my $record, 8, 0.1), undef, 'not all of it in time');
    is($! + 0, ETIMEDOUT, 'ETIMEDOUT');
    is($record, 'half', 'what was there');
    is($Pipework::FD::done, 4, 'and how much');
    is(Pipework::FD::write_all($w, $large, 0.1), undef, 'write_all without a reader, in time');
    is($Pipework::FD::done, 65536, 'how far it got');
    like(Pipework::error(), qr/^fd write all: the deadline has passed; 65536 done/, 'in words');
    is(Pipework::FD::slurp($r, 1000), undef, 'more than slurp may take');
    is(Pipework::error() + 0, 5, 'TooLong');
    {
        local $SIG{PIPE} = sub { fail('SIGPIPE') };
        Pipework::FD::close($r);
        is(Pipework::FD::write_all($w, 'x'), undef, 'write_all to a closed pipe');
        is($! + 0, EPIPE, 'EPIPE, and no signal');
    }
    Pipework::FD::close($w);
}
{
    # Handlers run, may change the bytes to write, and may die.
    Pipework::FD::pipe(my $r, my $w);
    my $data = $large;
    my $read = '';
    local $SIG{ALRM} = sub {
        $data = 'changed';
        Pipework::FD::sysread($r, $read, 65536, length $read);
        Time::HiRes::alarm(0.01);
    };
    alarm_asleep;
    is(Pipework::FD::write_all($w, $data, 10), 1_000_000, 'handlers run in a wait');
    Time::HiRes::alarm(0);
    Pipework::FD::close($w);
    is($read . Pipework::FD::slurp($r), $large, 'and change nothing');
    Pipework::FD::close($r);
    Pipework::FD::pipe($r, $w);
    local $SIG{ALRM} = sub { die "enough\n" };
    for (1 .. 5) {
        # In the eval: under load the handler may run before the wait has begun.
        my $ended = eval {
            Time::HiRes::alarm(0.01);
            Pipework::FD::read_full($r, my $none, 10);
            1;
        };
        ok(!$ended, 'a handler that dies');
        is($@, "enough\n", 'dies out of it');
    }
    Time::HiRes::alarm(0);
    Pipework::FD::close($_) for $r, $w;
}

# ---------------------------------------------------------------- at a position, and copies

my $file = file('file', '0123456789');
is(Pipework::FD::pread_full($file, my $bytes, 4, 3), 4, 'pread_full');
is($bytes, '3456', 'there');
is(Pipework::FD::pread_full($file, $bytes, 4, 8), 2, 'at the end');
is(Pipework::FD::pwrite_all($file, 'ab', 9), 2, 'pwrite_all');
is(Pipework::FD::slurp($file), '012345678ab', 'and the position stayed');
is(Pipework::FD::copy_all($file, my $copy = file('copy', ''), undef, 5), 0, 'copy_all at the end');
Pipework::FD::sysseek($file, 2, 0);
is(Pipework::FD::copy_all($file, $copy, 3), 3, 'copy_all');
is(Pipework::FD::copy_all($file, $copy), 6, 'the rest');
Pipework::FD::pread_full($copy, $bytes, 100, 0);
is($bytes, '2345678ab', 'all of it');
{
    Pipework::FD::pipe(my $r, my $w);
    Pipework::FD::sysseek($file, 0, 0);
    is(Pipework::FD::splice_all($file, $w, 5), 5, 'splice_all');
    is(Pipework::FD::sendfile_all($w, $file, 3, 1), 3, 'sendfile_all');
    is(Pipework::FD::sendfile_all($w, $file, undef, 9), 2, 'to the end');
    Pipework::FD::close($w);
    is(Pipework::FD::slurp($r), '01234123ab', 'moved');
    Pipework::FD::close($r);
    is(Pipework::FD::splice_all($file, $copy, 5), undef, 'splice_all without a pipe');
    is($! + 0, EINVAL, 'EINVAL');
}
for my $call (
    [read_full    => sub { Pipework::FD::read_full('x', my $b, 1) }],
    [pread_full   => sub { Pipework::FD::pread_full('x', my $b, 1, 0) }],
    [write_all    => sub { Pipework::FD::write_all('x', '') }],
    [pwrite_all   => sub { Pipework::FD::pwrite_all('x', '', 0) }],
    [slurp        => sub { Pipework::FD::slurp('x') }],
    [copy_all     => sub { Pipework::FD::copy_all(0, 'x') }],
    [splice_all   => sub { Pipework::FD::splice_all('x', 0) }],
    [sendfile_all => sub { Pipework::FD::sendfile_all(0, 'x') }],
    [accept_many  => sub { Pipework::FD::accept_many('x', 1) }],
    [send_many    => sub { Pipework::FD::send_many('x', []) }],
) {
    my ($name, $sub) = @$call;
    my $warning = '';
    local $SIG{__WARN__} = sub { $warning .= $_[0] };
    is($sub->(), undef, "$name of no descriptor");
    is($! + 0, EBADF, 'EBADF');
    like($warning, qr/^Pipework::FD::$name called with something other than a file descriptor at/,
        'and a warning');
}
is(Pipework::FD::read_full(12345, $bytes, 1), undef, 'a closed one');
is($! + 0, EBADF, 'EBADF');
ok(!eval { Pipework::FD::read_full(0, 'constant', 1); 1 }, 'a read-only buffer');
like($@, qr/^Modification of a read-only value attempted/, 'dies');

# ---------------------------------------------------------------- accept_many, Reserve

{
    Pipework::FD::socket(my $listener, AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    Pipework::FD::bind($listener, pack_sockaddr_un("$folder/socket"));
    Pipework::FD::listen($listener, 300);
    my @clients = map {
        Pipework::FD::socket(my $fd, AF_UNIX, SOCK_STREAM, 0);
        Pipework::FD::connect($fd, pack_sockaddr_un("$folder/socket")) // die $!;
        $fd;
    } 1 .. 50;
    my ($why, $fds, $peers) = Pipework::FD::accept_many($listener, 35);
    is($why, 'limit', 'accept_many: as many as were asked for');
    is(@$fds + @$peers, 70, 'descriptors and peers');
    my $reserve = Pipework::FD::Reserve->new;
    isa_ok($reserve, 'Pipework::FD::Reserve');
    ok($reserve->is_held, 'a descriptor is kept');
    is($reserve->shed($listener, 5), 5, 'five are turned away');
    is(Pipework::FD::sysread($clients[35], $bytes, 1), 0, 'and learn of it');
    ok($reserve->is_held, 'and it is kept again');
    ($why, my $more) = Pipework::FD::accept_many($listener, 1000);
    is($why, 'would block', 'accept_many when no other connection waits');
    is(@$more, 10, 'those were the rest');
    is((Pipework::FD::accept_many(0, 1))[0], 'failed', 'no listener');
    is($! + 0, Errno::ENOTSOCK, '$! says why');
    Pipework::FD::close($_) for @$fds, @$more, @clients, $listener;
    ok(!eval { Pipework::FD::Reserve::shed(\1, 0, 1); 1 }, 'no object');
    like($@, qr/^Expected a Pipework::FD::Reserve object/, 'the words');
}

# ---------------------------------------------------------------- datagrams

{
    Pipework::FD::socketpair(my $one, my $other, AF_UNIX, SOCK_DGRAM, 0);
    my $inbox = Pipework::FD::Inbox->new(8, 6);
    is($inbox->recv($other, 0), undef, 'nothing has come');
    is($! + 0, ETIMEDOUT, 'ETIMEDOUT');
    is(Pipework::FD::send_many($one, ['first', ['second'], '', 'too long']), 4, 'send_many');
    is($inbox->recv($other, 5), 4, 'recv');
    is_deeply([map { [$inbox->get($_)] } 0 .. 3],
        [['first', '', ''], ['second', '', ''], ['', '', ''], ['too lo', '', 1]], 'all of them');
    is_deeply([$inbox->get(4)], [], 'no others');
    is(Pipework::FD::send_many($one, [('x') x 1000], 0.1), undef, 'send_many until the socket is full');
    cmp_ok($Pipework::FD::done, '>', 0, 'how far it got');
    local $SIG{ALRM} = sub { undef $inbox };
    Pipework::FD::socketpair(my $quiet, my $unused, AF_UNIX, SOCK_DGRAM, 0);
    alarm_asleep;
    my $result = eval { $inbox->recv($quiet, 60); 1 };
    ok(!$result, 'a handler that gives the inbox up');
    like($@, qr/^(?:Attempted to use a destroyed|Expected a) Pipework::FD::Inbox object/,
        'ends the wait');
    Pipework::FD::close($_) for $one, $other, $quiet, $unused;
}

SKIP: {
    skip no_loopback(), 3 if no_loopback();
    my ($from, $to);
    for my $end ($from, $to) {
        Pipework::FD::socket($end, AF_INET, SOCK_DGRAM, 0);
        Pipework::FD::bind($end, pack_sockaddr_in(0, INADDR_LOOPBACK));
    }
    my $address = Pipework::FD::getsockname($to);
    is(Pipework::FD::send_many($from, [['one', $address], ['two', $address]]), 2, 'with addresses');
    my $inbox = Pipework::FD::Inbox->new(8, 100);
    is($inbox->recv($to, 5), 2, 'arrive');
    is(($inbox->get(1))[1], Pipework::FD::getsockname($from), 'with that of the sender');
    Pipework::FD::close($_) for $from, $to;
}

SKIP: {
    # Objects belong to the thread that made them.
    require Config;
    skip 'this perl has no threads', 2 if !$Config::Config{useithreads};
    require threads;
    my $reserve = Pipework::FD::Reserve->new;
    my $error = threads->create(sub { eval { $reserve->is_held }; return $@ })->join;
    like($error, qr/^Attempted to use a destroyed Pipework::FD::Reserve object/, 'there');
    ok($reserve->is_held, 'and here it is good');
}

# Under -T, bytes from outside are tainted.
{
    my $program = <<'PROGRAM';
use Pipework::FD;
use Scalar::Util qw(tainted);
use Socket;
Pipework::FD::socketpair(my $one, my $other, AF_UNIX, SOCK_STREAM, 0);
sub again { Pipework::FD::syswrite($one, 'text') }
again(); Pipework::FD::sysread($other, my $sysread, 4);
again(); Pipework::FD::recv($other, my $recv, 4, 0);
again(); Pipework::FD::read_full($other, my $full, 4);
$/ = \4;
again(); my $record = Pipework::FD::readline($other);
again(); Pipework::FD::close($one); undef $/;
my ($all) = Pipework::FD::readline($other);
print join '', map { tainted($_) ? 1 : 0 } $sysread, $recv, $full, $record, $all, 'text';
PROGRAM
    my $pid = open(my $output, '-|', $^X, '-T', (map { "-I$_" } grep { !ref } @INC), '-e', $program)
        // die $!;
    is(readline($output), '111110', 'taint');
    close $output;
}

# ---------------------------------------------------------------- close_range

{
    my $pid = child {
        my $first = Pipework::FD::dup2(0, 100);
        Pipework::FD::dup2(0, 101);
        Pipework::FD::dup2(0, 102);
        my $ok = Pipework::FD::close_range(101) == 1 && defined Pipework::FD::fcntl(100, F_GETFD, 0)
            && !defined Pipework::FD::fcntl(101, F_GETFD, 0)
            && !defined Pipework::FD::fcntl(102, F_GETFD, 0)
            && Pipework::FD::close_range(100, 100) == 1
            && !defined Pipework::FD::fcntl(100, F_GETFD, 0);
        $ok ? 0 : 1;
    };
    is(status($pid), 0, 'close_range');
    is(Pipework::FD::close_range(10, 5), undef, 'a range that ends before it begins');
    is($! + 0, EINVAL, 'EINVAL');
}
done_testing;
