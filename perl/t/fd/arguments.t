use strict;
use warnings;
use Test::More;
use FindBin ();
use lib "$FindBin::Bin/..";
use Asleep;
use Processes;
use Errno qw(EAGAIN EBADF);
use Fcntl;
use File::Temp ();
use POSIX ();
use Socket;
use Pipework::FD;

alarm 120;

# Takes all values out of @held when it is looked at, and puts others in their memory.
our (@held, @others);

sub empty {
    @held   = ();
    @others = map { "another $_" } 1 .. 10;
    return;
}

{
    package Emptying;
    sub TIESCALAR { my ($class, $value) = @_; return bless [$value], $class }
    sub FETCH     { main::empty(); return $_[0][0] }
    sub STORE     { $_[0][0] = $_[1] }

    package Overloaded;
    use overload '""' => sub { main::empty(); return ${ $_[0] } }, fallback => 1;
}

sub emptying { tie my $value, 'Emptying', $_[0]; return \$value }

# A value of its own, no constant.
sub fresh { return join '', @_ }

Pipework::FD::pipe(my $r, my $w) // die $!;
Pipework::FD::fcntl($_, F_SETFL, O_NONBLOCK) for $r, $w;

sub came {
    Pipework::FD::sysread($r, my $bytes, 1000) // return undef;
    return $bytes;
}

# ---------------------------------------------------------------- a descriptor frees the others

my ($read_end, $write_end) = (emptying($r), emptying($w));
for my $call (
    [syswrite  => sub { Pipework::FD::syswrite($$write_end, $held[0]) }],
    [syswrite4 => sub { Pipework::FD::syswrite($$write_end, $held[0], 9, 0) }],
    [write_all => sub { Pipework::FD::write_all($$write_end, $held[0]) }],
) {
    @held = (fresh('some', ' ', 'data'));
    is($call->[1]->(), 9, $call->[0]);
    is(came(), 'some data', 'what was passed');
}
for my $name (qw(sysread read_full)) {
    no strict 'refs';
    Pipework::FD::syswrite($w, 'from here');
    @held = (fresh('a', ' buffer'));
    my $buffer = \$held[0];
    is("Pipework::FD::$name"->($$read_end, $held[0], 9), 9, $name);
    is($$buffer, 'from here', 'into the buffer');
    is_deeply(\@others, [map { "another $_" } 1 .. 10], 'and nowhere else');
}
{
    my @warnings;
    local $SIG{__WARN__} = sub { push @warnings, @_; empty() };
    @held = (fresh('some', ' data'));
    is(Pipework::FD::syswrite($w, $held[0], '4x'), 4, 'a warning about a length');
    is(came(), 'some', 'what was passed');
    Pipework::FD::syswrite($w, 'here');
    @held = (fresh('a', ' buffer'));
    is(Pipework::FD::sysread($r, $held[0], '4x'), 4, 'and when it reads');
    is_deeply(\@others, [map { "another $_" } 1 .. 10], 'nowhere else');
    is(@warnings, 2, 'each once');
}
{
    open my $file, '<', $0 or die $!;
    my $fd = emptying(fileno $file);
    @held = (7 + @ARGV);
    is(Pipework::FD::sysseek($$fd, $held[0], 0), 7, 'sysseek');
    @held = (F_GETFD + @ARGV);
    is(Pipework::FD::fcntl($$fd, $held[0], 0), FD_CLOEXEC, 'fcntl');
    @held = (fileno($file) + @ARGV);
    is(Pipework::FD::close_range(${ emptying(900) }, $held[0]), undef, 'close_range');
}
{
    socketpair my $x, my $y, AF_UNIX, SOCK_DGRAM, 0 or die $!;
    @held = (fresh('some', ' data'));
    is(Pipework::FD::send(${ emptying(fileno $x) }, $held[0], 0), 9, 'send');
    is(sysread($y, my $bytes, 100), 9, 'which comes');
    is($bytes, 'some data', 'as it was');

    # An address that takes the data out of its pair.
    my $folder = File::Temp->newdir;
    my $address = pack_sockaddr_un("$folder/socket");
    socket my $receiver, AF_UNIX, SOCK_DGRAM, 0 or die $!;
    bind $receiver, $address or die $!;
    socket my $sender, AF_UNIX, SOCK_DGRAM, 0 or die $!;
    @held = (fresh('some', ' data'), bless \$address, 'Overloaded');
    is(Pipework::FD::send_many(fileno $sender, [\@held], 1), 1, 'send_many');
    is(sysread($receiver, $bytes, 100), 9, 'which comes');
    is($bytes, 'some data', 'as it was');
}

# ---------------------------------------------------------------- objects that go away

for my $call (
    [Reserve => sub { $held[0]->shed(${ emptying(-1) }, 1) }],
    [Inbox   => sub { $held[0]->recv(${ emptying(-1) }, 0) }],
    [Inbox   => sub { $held[0]->get(${ emptying(0) }) }],
) {
    my ($class, $method) = @$call;
    @held = ("Pipework::FD::$class"->new($class eq 'Inbox' ? (1, 10) : ()));
    ok(!eval { $method->(); 1 }, "$class, destroyed meanwhile");
    like($@, qr/^Attempted to use a destroyed Pipework::FD::$class object/, 'says so');
}
{
    socketpair my $x, my $y, AF_UNIX, SOCK_DGRAM, 0 or die $!;
    my $inbox = Pipework::FD::Inbox->new(1, 10);
    local $SIG{USR1} = sub { undef $inbox };
    my $pid = child {
        until_asleep;
        kill USR1 => getppid;
        0;
    };
    ok(!eval { $inbox->recv(fileno $x, 10); 1 }, 'in the wait');
    like($@, qr/^Attempted to use a destroyed Pipework::FD::Inbox object/, 'says so as well');
    waitpid $pid, 0;
}

# ---------------------------------------------------------------- invalid descriptors

{
    my @warnings;
    local $SIG{__WARN__} = sub { push @warnings, @_ };
    for my $bad (undef, 'abc', '', 'NaN' + 0, '0 but true', 1.5) {
        for my $range ([$bad], [900, $bad], [$bad, 901]) {
            next if @$range == 2 && !defined $range->[1];
            my $pid = child {
                @warnings = ();
                my $result = Pipework::FD::close_range(@$range);
                my $ok = !defined $result && $! == EBADF && @warnings == 1
                    && $warnings[0] =~ /^Pipework::FD::close_range called with something other than/
                    && defined fileno STDERR;
                $ok ? 0 : 1;
            };
            is(status($pid), 0, 'close_range of ' . join ', ', map { $_ // 'undef' } @$range);
        }
    }
    is(Pipework::FD::close_range(-1), undef, 'a negative one');
    is($! + 0, EBADF, 'is none either');
    is(Pipework::FD::close_range(900, $_), 1, "up to $_") for 2**32 - 1, ~0;
    @warnings = ();
    is(Pipework::FD::dup2($w, '0 but true'), undef, '0 but true');
    is(@warnings, 1, 'is none');
}

# ---------------------------------------------------------------- a failure changes nothing

for my $offset (undef, 0, 1, 6) {
    my $buffer = "\x{e9}bc";
    utf8::upgrade($buffer);
    is(Pipework::FD::sysread($r, $buffer, 10, $offset), undef, 'nothing is there');
    is($! + 0, EAGAIN, 'EAGAIN');
    is($buffer, "\x{e9}bc", 'the buffer is what it was');
    ok(utf8::is_utf8($buffer), 'with its flag');
}
{
    my $wide = "\x{263a}bc";
    is(Pipework::FD::recv($r, $wide, 10, 0), undef, 'no socket');
    is($wide, "\x{263a}bc", 'also recv');
}

# ---------------------------------------------------------------- numbers that are too large

my $largest = ~0;
for my $n (2**63, $largest, 1e30, 9**9**9) {
    is(Pipework::FD::syswrite($w, 'text', $n), 4, "a length of $n");
    is(Pipework::FD::syswrite($w, 'text', $n, 2), 2, 'behind an offset');
    is(Pipework::FD::syswrite($w, 'text', 1, $n), 0, 'an offset behind the end');
    is(Pipework::FD::sysread($r, my $buffer, $n), 6, 'to read as well');
    is($buffer, 'textxt', 'what there is');
    for my $call (
        [qr/^Out of memory for \d+ bytes at/, sub { Pipework::FD::sysread($r, $buffer, 1, $n) }],
        [qr/^Out of memory for \d+ bytes at/, sub { Pipework::FD::SV($n) }],
        [qr/^Negative length at/,             sub { Pipework::FD::SV(-$n) }],
        [qr/^Negative length at/,             sub { Pipework::FD::syswrite($w, 'text', -$n) }],
        [qr/^Offset outside string at/,       sub { Pipework::FD::sysread($r, $buffer, 1, -$n) }],
        [qr/^Offset outside string at/,       sub { Pipework::FD::syswrite($w, 'x', 1, -$n) }],
    ) {
        next if $n == $largest && $call->[0] =~ /Neg|Off/;
        ok(!eval { $call->[1]->(); 1 }, 'dies');
        like($@, $call->[0], 'in these words');
    }
    open my $file, '<', $0 or die $!;
    Pipework::FD::fcntl($w, F_SETFL, 0);
    socketpair my $x, my $y, AF_UNIX, SOCK_STREAM, 0 or die $!;
    is(Pipework::FD::sendfile_all(fileno $x, fileno $file, $n, (-s $0) - 10), 10, 'sendfile_all');
    sysseek $file, -5, 2;
    is(Pipework::FD::copy_all(fileno $file, $w, $n), 5, 'copy_all');
    Pipework::FD::fcntl($w, F_SETFL, O_NONBLOCK);
    came();
}
{
    open my $file, '<', $0 or die $!;
    local $/ = \(2**62);
    ok(!eval { Pipework::FD::readline(fileno $file); 1 }, 'a record that is too large');
    like($@, qr/^Out of memory for \d+ bytes at/, 'dies');
}
done_testing;
