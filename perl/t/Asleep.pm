package Asleep;

# Tests that go on once another thread or process waits, however long that takes on a busy machine,
# and not after so many milliseconds.
use strict;
use warnings;
use Exporter ();
use Fcntl ();
use POSIX ();

our @EXPORT    = qw(until_asleep until_threads_sleep);
our @EXPORT_OK = qw(alarm_asleep no_alarm);

# A test that asks for the alarm gets a process that sends it. It is forked here, before there are
# descriptors that it would keep open.
sub import {
    helper() if grep { $_ eq 'alarm_asleep' } @_;
    goto &Exporter::import;
}

# How often a thread has gone to sleep, if it sleeps now; undef if it does not, and '' if there is
# no such thread. A process is its first thread.
sub sleeps {
    my ($thread) = @_;
    open my $status, '<', "/proc/$thread/status" or return '';
    my $text = do { local $/; readline($status) // '' };
    return '' if $text !~ /^State:\s+[^ZX]/m;
    return $text =~ /^State:\s+S.*^voluntary_ctxt_switches:\s+(\d+)/ms ? $1 : undef;
}

# Whether it sleeps, and has for as long as `look` takes.
sub is_asleep {
    my ($thread, $look) = @_;
    my $before = sleeps($thread) // return 0;
    $look->();
    my $after = sleeps($thread) // return 0;
    return $before eq $after;
}

sub pause { select undef, undef, undef, 0.01 }

# Returns once a process sleeps: the parent of this one, unless another is given. One that has ended
# counts as asleep.
sub until_asleep {
    my ($pid) = @_;
    $pid //= getppid;
    pause() until is_asleep($pid, \&pause);
    return;
}

# Returns once all other threads of this process sleep.
sub until_threads_sleep {
    opendir my $tasks, "/proc/$$/task" or die $!;
    for my $thread (grep { /\d/ && $_ != $$ } readdir $tasks) { until_asleep("$$/task/$thread") }
    return;
}

# A process of its own sends the signals. It gets its orders through a pipe, and ends with it.
my ($orders, $answers, $of);

sub helper {
    pipe my $read, $orders or die $!;
    pipe $answers, my $write or die $!;
    my $parent = $of = $$;
    my $pid = fork // die $!;
    if (!$pid) {
        $SIG{ALRM} = $SIG{INT} = 'IGNORE';
        close $orders;
        my $is_due = 0;
        # Between two looks, or until there is an order.
        my $wait = sub {
            my ($secs) = @_;
            my $ready = '';
            vec($ready, fileno $read, 1) = 1;
            select($ready, undef, undef, $secs) > 0 or return 1;
            sysread $read, my $order, 1 or POSIX::_exit(0);
            $is_due = $order eq '1';
            syswrite $write, '0' if !$is_due;
            return 0;
        };
        while (1) {
            $wait->($is_due ? 0.01 : undef);
            my $undisturbed = 1;
            next if !$is_due || !is_asleep($parent, sub { $undisturbed = $wait->(0.01) });
            next if !$undisturbed;
            $is_due = 0;
            kill ALRM => $parent;
        }
    }
    close $_ for $read, $write;
    fcntl $_, Fcntl::F_SETFD(), Fcntl::FD_CLOEXEC() for $orders, $answers;
    return;
}

# SIGALRM comes once this process sleeps. To be called in one process only.
sub alarm_asleep {
    die 'not in the process that began' if $of != $$;
    syswrite $orders, '1';
    return;
}

# It does not come any more.
sub no_alarm {
    syswrite $orders, '0';
    # A handler may interrupt this.
    1 until sysread $answers, my $done, 1;
    return;
}

1;
