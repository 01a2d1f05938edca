# Signal handlers in each wait: one that returns, dies, closes, destroys, uses the object.
use strict;
use warnings;
use Test::More;
use File::Temp qw(tempdir);
use POSIX ();
use Time::HiRes qw(alarm);
use FindBin ();
use lib "$FindBin::Bin/..";
use Asleep;
use Processes;
use Pipework::Atomic;

alarm 120;

my $class = 'Pipework::Atomic';
my $long = 'x' x 200_000;

# Runs the handler while the call waits. Returns the call's result and its exception.
sub with_signal {
    my ($handler, $call) = @_;
    my $done;
    my $ran = 0;
    local $SIG{USR1} = sub { $ran++; $handler->() };
    my $parent = $$;
    my $pid = fork // die;
    if (!$pid) { until_asleep; kill USR1 => $parent; POSIX::_exit(0) }
    local $@;
    my @found = eval { my @back = $call->(); $done = 1; @back };
    my $why = $@;
    waitpid $pid, 0;
    is($ran, 1, 'the handler has run');
    return $done ? \@found : $why;
}

# Calls that wait to read, and their results once a message is there.
my %reading = (
    read_message => sub { $_[0]->read_message },
    recv => sub { $_[0]->recv(20) },
    get_line_burst_or_data => sub { ($_[0]->get_line_burst_or_data)[1] },
    next_item => sub { $_[0]->next_item->{data} },
    eof => sub { $_[0]->eof ? 'the end' : $_[0]->next_item->{data} },
    fill_buffer => sub { $_[0]->fill_buffer ? $_[0]->next_item->{data} : 'the end' },
);

sub reader_for {
    my $name = shift;
    my ($r, $w) = $class->pair(mixed_data_mode => scalar $name =~ /line/);
    $r->blocking(1);
    return ($r, $w);
}

for my $name (sort keys %reading) {
    my $call = $reading{$name};
    subtest $name => sub {
        my ($r, $w) = reader_for($name);
        my $pid = fork // die;
        if (!$pid) { until_asleep; $w->write_message('late'); POSIX::_exit(0) }
        is_deeply(with_signal(sub { }, sub { $call->($r) }), ['late'], 'goes on after it');
        waitpid $pid, 0;

        is(with_signal(sub { die "enough\n" }, sub { $call->($r) }), "enough\n", 'ends with it');
        $w->write_message('next');
        is_deeply([$call->($r)], ['next'], 'and nothing is lost');

        is_deeply(
            with_signal(sub { $w->write_message('own') }, sub { $call->($r) }),
            ['own'], 'the handler writes'
        );

        # A second fill_buffer would wait for bytes that the first has taken.
        my $uses = $name eq 'fill_buffer' ? $reading{recv} : $call;
        my $again = with_signal(
            sub { $w->write_message($_) for 'first', 'second'; $uses->($r) },
            sub { $uses->($r) }
        );
        is_deeply($again, ['second'], 'the handler reads');

        if ($name !~ /recv|next_item/) {
            my $back = with_signal(
                sub { $r->blocking(0); $w->write_message('x') if $name eq 'eof' },
                sub { $name eq 'fill_buffer' ? $r->fill_buffer : $call->($r) }
            );
            my $nothing = {eof => ['x'], fill_buffer => [0]};
            is_deeply($back, $nothing->{$name} // [], 'blocking(0) ends it');
            $r->blocking(1);
        }

        my $why = with_signal(sub { $r->close }, sub { $call->($r) });
        ref $why eq 'ARRAY'
            ? like($why->[0] // '', qr/^(?:the end)?$/, 'closed: the end')
            : isa_ok($why, 'Pipework::Error');

        ($r, $w) = reader_for($name);
        $why = with_signal(sub { undef $r }, sub { $call->($r) });
        like($why, qr/^Attempted to use a destroyed Pipework::Atomic object/, 'destroyed');

        my %holder = (r => (my @ends = reader_for($name))[0]);
        undef $ends[0];
        $why = with_signal(sub { %holder = () }, sub { $call->($holder{r}) });
        like($why, qr/^Attempted to use a destroyed Pipework::Atomic object/, 'with its variable');

        ($r, $w) = reader_for($name);
        $why = with_signal(sub { $r->DESTROY }, sub { $call->($r) });
        like($why, qr/^Attempted to use a destroyed Pipework::Atomic object/, 'by hand');
    };
}

# Calls that wait to write.
my %writing = (
    write_message => sub { $_[0]->write_message($long) },
    write_burst => sub { $_[0]->write_burst('b' x 4000) for 1 .. 40; 1 },
    send_many => sub { $_[0]->send_many(($long) x 2) },
    flush =>
        sub { $_[0]->blocking(0); $_[0]->write_message($long); $_[0]->flush(blocking => 1); 1 },
    close => sub { $_[0]->blocking(0); $_[0]->write_message($long); $_[0]->close; 1 },
    set_mixed_data_mode =>
        sub { $_[0]->blocking(0); $_[0]->write_message($long); $_[0]->set_mixed_data_mode; 1 },
);

# Reads everything in a child, once this process waits if `$later`; its status is the number of whole long messages.
sub reader_in_child {
    my ($r, $w, $later) = @_;
    my $pid = fork // die;
    return $pid if $pid;
    $SIG{USR1} = 'IGNORE';
    $w->DESTROY;
    until_asleep if $later;
    my $whole = 0;
    # Plain bursts are for a reader of another kind.
    if ($ENV{BURSTS}) { 1 while sysread $r->rh, my $bytes, 65_536 }
    eval {
        while (defined(my $message = $r->read_message)) { $whole++ if $message eq $long }
    };
    POSIX::_exit($whole);
}

for my $name (sort keys %writing) {
    my $call = $writing{$name};
    subtest $name => sub {
        local $ENV{BURSTS} = $name eq 'write_burst';
        my ($r, $w) = $class->pair;
        my $pid = reader_in_child($r, $w, 1);
        $r->close;
        my $back = with_signal(sub { }, sub { $call->($w) });
        ok(ref $back, 'goes on after it') or diag $back;
        is($w->pending_output, 0, 'all is written');
        undef $w;
        waitpid $pid, 0;
        my %messages = (write_burst => 0, send_many => 2);
        is($? >> 8, $messages{$name} // 1, 'and read');

        ($r, $w) = $class->pair;
        is(with_signal(sub { die "enough\n" }, sub { $call->($w) }), "enough\n", 'ends with it');
        is($w->pending_output, 1, 'the rest is pending');
        $pid = reader_in_child($r, $w, 0);
        $r->close;
        undef $w;
        is(status($pid), $messages{$name} // 1, 'and written later');

        ($r, $w) = $class->pair;
        $back = with_signal(sub { $r->close }, sub { $call->($w) });
        like($back, qr/^Disconnected pipe/, 'the reader is closed');

        ($r, $w) = $class->pair;
        $back = with_signal(sub { $w->blocking(0) }, sub { $call->($w) }) if $name =~ /write|send/;
        ok(ref $back && $w->pending_output, 'blocking(0) ends it') if $name =~ /write|send/;
        $r->close;
        local $SIG{__WARN__} = sub { };
        undef $w;

        ($r, $w) = $class->pair;
        $back = with_signal(
            sub {
                $r->close;
                eval { $w->close }
            },
            sub { $call->($w) }
        );
        ok($name ne 'write_burst' ? ref $back : $back =~ /^Cannot call write/, 'closed')
            or diag $back;

        # A method in Perl holds its object.
        return if $name eq 'close';
        ($r, $w) = $class->pair;
        $back = with_signal(sub { $r->close; undef $w }, sub { $call->($w) });
        like($back, qr/^(?:Attempted to use a destroyed|Expected a) Pipework::Atomic object/, 'destroyed');
    };
}

subtest 'a signal while a writer goes without its DESTROY' => sub {
    @Without::ISA = $class;
    { no warnings 'once'; *Without::DESTROY = sub { } }
    my ($r, $w) = Without->pair;
    $w->blocking(0);
    $w->write_message($long);
    my $ran = 0;
    local $SIG{USR1} = sub { $ran++ };
    my $parent = $$;
    my $pid = child {
        Pipework::Atomic::DESTROY($w);
        until_asleep;
        kill USR1 => $parent;
        until_asleep;
        eval { $r->read_message eq $long } ? 0 : 1;
    };
    $r->close;
    undef $w;
    waitpid $pid, 0;
    is($ran, 1, 'the handler runs afterwards');
    is($?, 0, 'what is pending is written all the same');
};

subtest 'a handler that writes' => sub {
    my ($r, $w) = $class->pair;
    my $pid = reader_in_child($r, $w, 1);
    $r->close;
    my $back = with_signal(sub { $w->write_message($long) }, sub { $w->write_message($long) });
    is_deeply($back, [50], 'goes behind what waits');
    $w->close;
    is(status($pid), 2, 'and both are whole');
};

subtest 'the destructor' => sub {
    my ($r, $w) = $class->pair;
    my $pid = reader_in_child($r, $w, 1);
    $r->close;
    $w->blocking(0);
    $w->write_message($long);
    is_deeply(with_signal(sub { }, sub { undef $w; 1 }), [1], 'handlers run in it');
    is(status($pid), 1, 'and it goes on');
    ($r, $w) = $class->pair;
    $w->blocking(0);
    $w->write_message($long);
    my @warnings;
    local $SIG{__WARN__} = sub { push @warnings, @_ };
    is_deeply(with_signal(sub { die "enough\n" }, sub { undef $w; 1 }), [1], 'it does not die');
    is_deeply(\@warnings, ["Pipework::Atomic: pending messages are lost: enough\n"], 'it warns');
};

subtest 'write_fifo' => sub {
    my $path = tempdir(CLEANUP => 1) . '/fifo';
    POSIX::mkfifo($path, 0600) or die;
    my $r;
    my $back =
        with_signal(sub { $r = $class->read_fifo($path) }, sub { $class->write_fifo($path) });
    isa_ok($back->[0], $class, 'a handler that returns');
    undef $_ for $r, $back;
    is(with_signal(sub { die "enough\n" }, sub { $class->write_fifo($path) }), "enough\n", 'dies');
};

subtest 'many' => sub {
    my ($r, $w) = $class->pair;
    local $SIG{ALRM} = sub { die "enough\n" };
    my $died = 0;
    for my $i (1 .. 300) {
        eval {
            alarm 0.0005;
            $r->read_message;
            1;
        };
        $died++ if $@ eq "enough\n";
        alarm 0;
    }
    is($died, 300, 'handlers that die');
    $w->write_message('whole');
    is($r->read_message, 'whole', 'and it works on');
};

alarm 0;
done_testing;
