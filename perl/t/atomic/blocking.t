# Writers and readers with and without blocking, and bytes that are pending.
use strict;
use warnings;
use Test::More;
use FindBin ();
use lib "$FindBin::Bin/..";
use Asleep;
use Processes;
use POSIX ();
use Pipework::Atomic;

alarm 120;

my $class = 'Pipework::Atomic';
my $long = 'x' x 300_000;

subtest 'write_message of a blocking writer waits until all is written' => sub {
    my ($r, $w) = $class->pair;
    my $pid = child {
        $w->close;
        my @m = map { $r->read_message } 1 .. 5;
        scalar grep { $_ eq $long } @m
    };
    $r->close;
    is($w->write_message($long), 74, 'parts') for 1 .. 5;
    is($w->pending_output, 0, 'pending_output is 0');
    is(status($pid), 5, 'the reader has all five');
};

subtest 'write_message of a writer that does not block leaves the rest pending' => sub {
    my ($r, $w) = $class->pair;
    is($w->blocking(0), 0, 'set');
    is($w->write_message($long), 74, 'write_message accepts it') for 1 .. 5;
    is($w->write_burst('no message'), 1, 'write_burst behind it');
    is($w->pending_output, 1, 'pending_output');
    is_deeply([$w->flush], [], 'flush writes what fits');
    is($w->pending_output, 1, 'the rest is pending');
    my $pid = child {
        $w->DESTROY;
        my @m = map { $r->read_message } 1 .. 5;
        scalar grep { $_ eq $long } @m
    };
    $r->close;
    $w->flush(blocking => 1);
    is($w->pending_output, 0, 'flush(blocking => 1) waits');
    is($w->blocking, 0, 'the flag stays');
    is(status($pid), 5, 'the reader has all five');
};

subtest 'flush writes what is pending while the reader reads' => sub {
    my ($r, $w) = $class->pair;
    $_->blocking(0) for $r, $w;
    $w->write_message($long) for 1 .. 3;
    my @found;
    for (1 .. 1000) { push @found, $r->read_message; last if @found == 3; $w->flush }
    is_deeply(\@found, [($long) x 3], 'all messages, in order');
    is($w->pending_output, 0, 'nothing is pending');
};

subtest 'close and destruction write what is pending' => sub {
    for my $how (qw(close undef)) {
        my ($r, $w) = $class->pair;
        $w->blocking(0);
        my $pid = child {
            $w->DESTROY;
            my @m;
            while (defined(my $m = $r->read_message)) { push @m, $m }
            scalar grep { $_ eq $long } @m
        };
        $r->close;
        $w->write_message($long) for 1 .. 4;
        is($w->pending_output, 1, 'something is pending');
        $how eq 'close' ? $w->close : undef $w;
        is(status($pid), 4, "$how writes it");
    }
};

subtest 'writing to a pipe without a reader dies' => sub {
    local $SIG{PIPE} = sub { fail('SIGPIPE') };
    my ($r, $w) = $class->pair;
    $w->blocking(0);
    $w->write_message($long);
    $r->close;
    for my $call (
        sub { $w->flush },
        sub { $w->write_message('x') },
        sub { $w->write_message('x') },
        sub { $w->write_burst('x') }
        )
    {
        ok(!eval { $call->(); 1 }, 'each time');
        like($@, qr/^Disconnected pipe at \Q$0/, 'words');
        is(0 + $!, POSIX::EPIPE(), '$!');
        is($w->pending_output, 0, 'nothing is pending any more');
    }
    is($w->close, undef, 'close with nothing pending succeeds');
    ($r, $w) = $class->pair;
    $w->blocking(0);
    $w->write_message($long);
    $r->close;
    ok(!eval { $w->close; 1 }, 'close with something pending dies');
    like($@, qr/^Disconnected pipe at \Q$0/, 'words');
    is($w->wh, undef, 'the end is closed');
    ($r, $w) = $class->pair;
    $w->blocking(0);
    $w->write_message($long);
    $r->close;
    my @warnings;
    {
        local $SIG{__WARN__} = sub { push @warnings, @_ };
        $@ = 'kept';
        $! = 5;
        $? = 6;
        undef $w;
        is_deeply([$@, 0 + $!, $?], ['kept', 5, 6], 'destruction keeps $@, $! and $?');
    }
    is(@warnings, 1, 'one warning');
    like($warnings[0], qr/^Pipework::Atomic: pending messages are lost: Disconnected pipe/, 'words');
};

subtest 'write_message dies when the reader leaves during the wait' => sub {
    my ($r, $w) = $class->pair;
    my $pid = child { $w->close; until_asleep; $r->close; 0 };
    $r->close;
    ok(!eval { $w->write_message($long) for 1 .. 5; 1 }, 'write_message');
    like($@, qr/^Disconnected pipe at \Q$0/, 'words');
    status($pid);
};

subtest 'eof of a blocking reader waits for a message or the end' => sub {
    my ($r, $w) = $class->pair;
    my $pid = child {
        $r->close;
        until_asleep;
        $w->write_message('m');
        until_asleep;
        0
    };
    $w->close;
    my @found;
    until ($r->eof) { push @found, $r->read_message }
    is_deeply(\@found, ['m'], 'the message before the end');
    status($pid);
    is($r->eof, 1, 'eof stays 1');
};

subtest 'fill_buffer of a blocking reader waits for bytes' => sub {
    my ($r, $w) = $class->pair;
    my $pid = child { $r->close; until_asleep; $w->write_message('m'); 0 };
    $w->close;
    is($r->fill_buffer, 17, 'for bytes');
    is($r->fill_buffer, 0, 'or the end');
    is($r->read_message, 'm', 'a message');
    status($pid);
};

subtest 'blocking does not change the open file' => sub {
    require Fcntl;
    my ($r, $w) = $class->pair;
    $_->blocking(0) for $r, $w;
    $r->read_message;
    $w->write_message($long);
    ok(!(fcntl($_, Fcntl::F_GETFL(), 0) & Fcntl::O_NONBLOCK()), 'O_NONBLOCK stays off')
        for $r->rh, $w->wh;
    $w->blocking(1);
    $r->blocking(1);
    my $pid = child { $w->DESTROY; $r->read_message eq $long ? 0 : 1 };
    $r->close;
    $w->close;
    is(status($pid), 0, 'blocking again');
};

subtest 'size, capacity, resize, resize_or_max and max_size' => sub {
    my ($r, $w) = $class->pair;
    is($r->size, 65_536, 'size');
    is($w->size, 65_536, 'of either end');
    ok($class->max_size >= 65_536, 'max_size of the class');
    is($r->max_size, $class->max_size, 'and of an object');
    is($w->resize(10_000), 16_384, 'resize returns what the kernel gave');
    is($r->size, 16_384, 'size');
    is($r->capacity, 16_384, 'capacity');
    is($w->resize_or_max(1 << 40), $w->max_size, 'resize_or_max');
    is($w->resize_or_max(8192), 8192, 'resize_or_max of less');
    is($w->resize(0), 4096, 'resize of 0 is a page');
    $w->write_message('x' x 4000);
    $w->resize(65_536);
    $w->write_message('x' x 40_000);
    $! = 0;
    is($w->resize(4096), undef, 'resize below the content');
    is(0 + $!, POSIX::EBUSY(), '$!');
    like(Pipework::error(), qr/capacity/, 'and why');
    is($r->size, 65_536, 'the size has not changed');
};

done_testing;
