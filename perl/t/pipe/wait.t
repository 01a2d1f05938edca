use strict;
use warnings;
use Config;
use Test::More;
use Errno qw(EBADF ECANCELED);
use Pipework::Pipe;
use POSIX ();
use FindBin ();
use lib "$FindBin::Bin/..";
use Asleep qw(alarm_asleep no_alarm until_threads_sleep);

# The alarm clock is used for other things here.
my $guard = fork // die $!;
if (!$guard) {
    sleep 300;
    kill KILL => getppid;
    POSIX::_exit(0);
}
my $self = $$;
END { kill KILL => $guard if $guard && $$ == $self }

# Every call of a pipe that waits.
my %waits = (
    recv     => sub { $_[0]->recv },
    sysread  => sub { sysread $_[0], my $buffer, 10 },
    read     => sub { $_[0]->read(my $buffer, 10) },
    line     => sub { scalar readline $_[0] },
    record   => sub { local $/ = \10; scalar readline $_[0] },
    slurp    => sub { local $/; scalar readline $_[0] },
    getc     => sub { getc $_[0] },
    eof      => sub { eof $_[0] ? undef : 1 },
    send     => sub { $_[1]->send('x' x 100) },
    print    => sub { print({ $_[1] } 'x' x 100) || undef },
    syswrite => sub { syswrite $_[1], 'x' x 100 },
    copy_to_fd => sub { open my $null, '>', '/dev/null' or die $!; $_[0]->copy_to_fd($null, length => 10) },
    copy_from_fd => sub {
        open my $zero, '<', '/dev/zero' or die $!;
        $_[1]->copy_from_fd($zero, length => 100);
    },
);
for my $name (sort keys %waits) {
    my $wait   = $waits{$name};
    my $writes = $name =~ /send|print|syswrite|from/;

    # A handler that returns: the wait goes on, and a call of the handler may end it.
    my ($r, $w) = Pipework::Pipe->pair(capacity => 16);
    my $seen = 0;
    local $SIG{ALRM} = sub {
        if (++$seen < 3) { alarm_asleep }
        elsif ($writes)  { alarm_asleep; $r->recv }
        else             { print {$w} "0123456789\n"; close $w }
    };
    alarm_asleep;
    ok(defined $wait->($r, $w), "$name: a handler that returns");
    no_alarm;
    cmp_ok($seen, '>=', 3, 'does not end the wait');

    # A handler that dies.
    ($r, $w) = Pipework::Pipe->pair(capacity => 16);
    $w->send("half") if !$writes && $name !~ /recv|sysread|getc|eof|copy/;
    local $SIG{ALRM} = sub { die "enough\n" };
    alarm_asleep;
    ok(!eval { $wait->($r, $w); 1 }, "$name: a handler that dies");
    is($@, "enough\n", 'ends it');
    if ($writes) {
        # The bytes that it had sent are in the pipe, in order, and nothing else.
        is(length $r->recv, 16, 'what was put in');
        is($w->send('ok'), 2, 'and the end is good');
        is($r->recv, 'ok', 'which arrives');
    } else {
        $w->send(" of it\n");
        like($r->recv . ($r->buffered ? $r->recv : ''), qr/^(?:half)? of it\n$/, 'nothing is lost');
    }

    # A handler that closes the end.
    ($r, $w) = Pipework::Pipe->pair(capacity => 16);
    local $SIG{ALRM} = sub { close($writes ? $w : $r) };
    alarm_asleep;
    $! = 0;
    ok(!defined $wait->($r, $w), "$name: a handler that closes the end");
    is($! + 0, EBADF, 'EBADF');

    # A handler that closes the other end.
    ($r, $w) = Pipework::Pipe->pair(capacity => 16);
    local $SIG{ALRM} = sub { ($writes ? $r : $w)->close_with_error('gone') };
    alarm_asleep;
    ok(!defined $wait->($r, $w), "$name: a handler that gives up the other end");
    is($! + 0, ECANCELED, 'ECANCELED');
}

# A handler may use the end that waits.
{
    my ($r, $w) = Pipework::Pipe->pair;
    my $inner;
    local $SIG{ALRM} = sub { $w->send("first\nsecond\n"); $inner = <$r> };
    alarm_asleep;
    is(<$r>, "second\n", 'a line for each');
    is($inner, "first\n", 'in order');
    local $SIG{ALRM} = sub { undef $r };
    alarm_asleep;
    ok(!defined eval { $r->recv }, 'a handler that gives the end up');
}

SKIP: {
    skip 'this perl has no threads', 1 if !$Config{useithreads};
    require threads;

    # One thread writes, one reads, as much as there is.
    my ($r, $w) = Pipework::Pipe->pair(capacity => 1000);
    my $thread = threads->create(sub {
        close $r;
        print {$w} "line $_\n" for 1 .. 20_000;
        close $w;
    });
    close $w;
    my ($count, $wrong) = (0, 0);
    while (defined(my $line = <$r>)) { $wrong++ if $line ne 'line ' . ++$count . "\n" }
    is($count, 20_000, 'another thread writes');
    is($wrong, 0, 'every line, in order');
    $thread->join;

    # An end is closed when its last copy is.
    ($r, $w) = Pipework::Pipe->pair;
    threads->create(sub { print {$w} 'from there' })->join;
    is($r->recv(max => 100, timeout => 1), 'from there', 'a thread that is over');
    ok(!$r->is_closed, 'has closed its own copy only');
    close $w;
    ok($r->is_closed, 'and now there is none');

    # Two threads in one end.
    ($r, $w) = Pipework::Pipe->pair;
    $thread = threads->create(sub { return $r->recv });
    until_threads_sleep;
    ok(!eval { $r->recv(max => 1, timeout => 0); 1 }, 'a second thread');
    like($@, qr/^Another thread is using this end of the pipe at/, 'the words');
    $w->send('for the first');
    is($thread->join, 'for the first', 'which gets what it waits for');
    is($r->recv(max => 1, timeout => 0), undef, 'then it is free');

    # An end that a thread drops stays open here.
    ($r, $w) = Pipework::Pipe->pair;
    $w->send("one\ntwo\n");
    is(<$r>, "one\n", 'a line');
    is(threads->create(sub { return scalar <$r> })->join, "two\n", 'the next one in a thread');
    $thread = threads->create(sub { $w->close_with_error('gave up') });
    $thread->join;
    is($r->recv, undef, 'a thread that gives up');
    is($r->error, 'gave up', 'does so for all');
    is($w->send('x'), undef, 'send here fails, too');
    is($! + 0, EBADF, 'EBADF');
}
done_testing;
