use strict;
use warnings;
use Test::More;
use FindBin ();
use lib "$FindBin::Bin/..";
use Asleep;
use Errno qw(EBADF EINTR);
use Fcntl;
use POSIX ();
use Pipework::FD;
use Pipework::FD::Constants;

alarm 120;

# Once this process waits, in another one.
sub later {
    my ($do) = @_;
    my $pid = fork // die $!;
    return $pid if $pid;
    until_asleep;
    $do->();
    POSIX::_exit(0);
}

sub took {
    my ($sub) = @_;
    my $start = Pipework::FD::clock_gettime_monotonic();
    $sub->();
    return Pipework::FD::clock_gettime_monotonic() - $start;
}

# ---------------------------------------------------------------- poll

Pipework::FD::pipe(my $r, my $w);
my $list = pack POLLFD_PACKER, $r, POLLIN, 0, $w, POLLOUT, 0;
is(Pipework::FD::poll($list, 0), 1, 'one is ready');
is_deeply([unpack POLLFD_PACKER, $list], [$r, POLLIN, 0, $w, POLLOUT, POLLOUT],
    'the list says which');
my $one = pack POLLFD_PACKER_ONCE, $r, POLLIN, 0;
is(Pipework::FD::poll($one, 0), 0, 'none is');
cmp_ok(took(sub { is(Pipework::FD::poll($one, 0.3), 0, 'a fraction of a second') }), '>=', 0.29,
    'which it waits');
cmp_ok(took(sub { is(Pipework::FD::poll(undef, 0.2), 0, 'no list') }), '>=', 0.19, 'is a sleep');
cmp_ok(took(sub { is(Pipework::FD::poll($one, 1), 0, 'seconds') }), '>=', 0.99,
    'and no milliseconds');
for my $ever (undef, -1) {
    my $pid = later(sub { Pipework::FD::syswrite($w, 'x') });
    is(Pipework::FD::poll($one, $ever), 1, 'for ever');
    is((unpack POLLFD_PACKER, $one)[2], POLLIN, 'until there is something');
    Pipework::FD::sysread($r, my $gone, 1);
    waitpid $pid, 0;
}
my $closed = pack POLLFD_PACKER, 12345, POLLIN, 0, -1, POLLIN, 7;
is(Pipework::FD::poll($closed, 1), 1, 'a closed one is ready');
is_deeply([unpack POLLFD_PACKER, $closed], [12345, POLLIN, POLLNVAL, -1, POLLIN, 0],
    'and a negative one left out');
{
    local $SIG{USR1} = sub { };
    my $parent = $$;
    my $pid = later(sub { kill USR1 => $parent });
    is(Pipework::FD::poll($one, 10), undef, 'a signal ends it');
    is($! + 0, EINTR, 'as it ends poll(2)');
    waitpid $pid, 0;
    local $SIG{USR1} = sub { die "enough\n" };
    $pid = later(sub { kill USR1 => $parent });
    ok(!eval { Pipework::FD::poll($one, 10); 1 }, 'a handler that dies');
    is($@, "enough\n", 'dies out of it');
    waitpid $pid, 0;
}
Pipework::FD::close($_) for $r, $w;

# ---------------------------------------------------------------- select

Pipework::FD::pipe($r, $w);
my ($readable, $writable) = ('', '');
vec($readable, $r, 1) = 1;
vec($writable, $w, 1) = 1;
is(Pipework::FD::select($readable, $writable, undef, 1), 1, 'select');
is(vec($readable, $r, 1), 0, 'changes the variables');
is(vec($writable, $w, 1), 1, 'that it is given');

# ---------------------------------------------------------------- readline

sub with {
    my ($text, $do) = @_;
    Pipework::FD::pipe(my $r, my $w);
    Pipework::FD::syswrite($w, $text);
    Pipework::FD::close($w);
    $do->($r);
    Pipework::FD::close($r);
    return;
}
{
    local $/;
    with("all\nof it\n", sub {
        is(scalar Pipework::FD::readline($_[0]), "all\nof it\n", 'all of it');
        is(scalar Pipework::FD::readline($_[0]), undef, 'the end');
        is(scalar Pipework::FD::readline($_[0]), undef, 'again');
    });
    with("all\nof it\n", sub {
        is_deeply([Pipework::FD::readline($_[0])], ["all\nof it\n"], 'in list context');
        is_deeply([Pipework::FD::readline($_[0])], [], 'the end');
    });
    is(Pipework::FD::readline(12345), undef, 'a closed one');
    is($! + 0, EBADF, 'EBADF');
    my @nothing = Pipework::FD::readline(12345);
    is_deeply(\@nothing, [undef], 'in list context');
}
{
    local $/ = \4;
    with('0123456789', sub {
        is(scalar Pipework::FD::readline($_[0]), '0123', 'a record');
        is(scalar Pipework::FD::readline($_[0]), '4567', 'a record');
        is(scalar Pipework::FD::readline($_[0]), '89', 'the last one');
        is(scalar Pipework::FD::readline($_[0]), undef, 'the end');
    });
    with('0123456789', sub {
        is_deeply([Pipework::FD::readline($_[0])], ['0123', '4567', '89'], 'all records');
        is_deeply([Pipework::FD::readline($_[0])], [], 'the end');
    });
    # A record that comes in pieces, and signals between them.
    Pipework::FD::pipe(my $r, my $w);
    my $seen = 0;
    Pipework::FD::pipe(my $handled, my $tell);
    local $SIG{USR1} = sub { $seen++; Pipework::FD::syswrite($tell, 'x') };
    my $parent = $$;
    my $pid = later(sub {
        for my $piece ('01', '23') {
            kill USR1 => $parent;
            Pipework::FD::syswrite($w, $piece);
            Pipework::FD::sysread($handled, my $told, 1);
        }
    });
    is(scalar Pipework::FD::readline($r), '0123', 'a record in pieces');
    is($seen, 2, 'and the handlers ran');
    waitpid $pid, 0;
    Pipework::FD::close($_) for $r, $w, $handled, $tell;
}
for my $lines ("\n", '', 'x') {
    local $/ = $lines;
    ok(!eval { Pipework::FD::readline(0); 1 }, 'lines');
    like($@, qr/^Pipework::FD::readline does not split lines at/, 'are a handle\'s work');
}
{
    # A handler that dies leaves nothing behind, many times.
    local $/;
    local $SIG{ALRM} = sub { die "enough\n" };
    Pipework::FD::pipe(my $r, my $w);
    require Time::HiRes;
    for (1 .. 20) {
        # In the eval: under load the handler may run before the wait has begun.
        eval {
            Time::HiRes::alarm(0.01);
            Pipework::FD::readline($r);
        };
        is($@, "enough\n", 'a handler that dies');
    }
    Time::HiRes::alarm(0);
    Pipework::FD::close($_) for $r, $w;
}

my $before = Time::HiRes::clock_gettime(Time::HiRes::CLOCK_MONOTONIC());
my $now    = Pipework::FD::clock_gettime_monotonic();
cmp_ok($now, '>=', $before, 'the clock of CLOCK_MONOTONIC');
cmp_ok($now, '<=', Time::HiRes::clock_gettime(Time::HiRes::CLOCK_MONOTONIC()), 'in seconds');
done_testing;
