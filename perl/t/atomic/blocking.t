# Writers and readers that wait, and those that do not; what is pending, and what becomes of it.
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

subtest 'a writer that waits' => sub {
    my ($r, $w) = $class->pair;
    my $pid = child {
        $w->close;
        my @m = map { $r->read_message } 1 .. 5;
        scalar grep { $_ eq $long } @m
    };
    $r->close;
    is($w->write_message($long), 74, 'parts') for 1 .. 5;
    is($w->pending_output, 0, 'all is written');
    is(status($pid), 5, 'and read');
};

subtest 'one that does not' => sub {
    my ($r, $w) = $class->pair;
    is($w->blocking(0), 0, 'set');
    is($w->write_message($long), 74, 'it is never refused') for 1 .. 5;
    is($w->write_burst('no message'), 1, 'behind it');
    is($w->pending_output, 1, 'most is pending');
    is_deeply([$w->flush], [], 'what there is space for');
    is($w->pending_output, 1, 'is not much');
    my $pid = child {
        $w->DESTROY;
        my @m = map { $r->read_message } 1 .. 5;
        scalar grep { $_ eq $long } @m
    };
    $r->close;
    $w->flush(blocking => 1);
    is($w->pending_output, 0, 'waited for');
    is($w->blocking, 0, 'the flag stays');
    is(status($pid), 5, 'and read');
};

subtest 'read while it is written' => sub {
    my ($r, $w) = $class->pair;
    $_->blocking(0) for $r, $w;
    $w->write_message($long) for 1 .. 3;
    my @found;
    for (1 .. 1000) { push @found, $r->read_message; last if @found == 3; $w->flush }
    is_deeply(\@found, [($long) x 3], 'in one process');
    is($w->pending_output, 0, 'nothing is left');
};

subtest 'written at the end' => sub {
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

subtest 'nobody reads' => sub {
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
    is($w->close, undef, 'nothing is lost by closing');
    ($r, $w) = $class->pair;
    $w->blocking(0);
    $w->write_message($long);
    $r->close;
    ok(!eval { $w->close; 1 }, 'something is');
    like($@, qr/^Disconnected pipe at \Q$0/, 'words');
    is($w->wh, undef, 'it is closed all the same');
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
        is_deeply([$@, 0 + $!, $?], ['kept', 5, 6], 'destruction changes nothing');
    }
    is(@warnings, 1, 'one warning');
    like($warnings[0], qr/^Pipework::Atomic: what was pending is lost: Disconnected pipe/, 'words');
};

subtest 'a blocking writer without a reader' => sub {
    my ($r, $w) = $class->pair;
    my $pid = child { $w->close; until_asleep; $r->close; 0 };
    $r->close;
    ok(!eval { $w->write_message($long) for 1 .. 5; 1 }, 'the reader leaves while it waits');
    like($@, qr/^Disconnected pipe at \Q$0/, 'words');
    status($pid);
};

subtest 'eof waits' => sub {
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
    is_deeply(\@found, ['m'], 'until it knows');
    status($pid);
    is($r->eof, 1, 'and remembers');
};

subtest 'fill_buffer waits' => sub {
    my ($r, $w) = $class->pair;
    my $pid = child { $r->close; until_asleep; $w->write_message('m'); 0 };
    $w->close;
    is($r->fill_buffer, 17, 'for bytes');
    is($r->fill_buffer, 0, 'or the end');
    is($r->read_message, 'm', 'a message');
    status($pid);
};

subtest 'flags of the open file' => sub {
    require Fcntl;
    my ($r, $w) = $class->pair;
    $_->blocking(0) for $r, $w;
    $r->read_message;
    $w->write_message($long);
    ok(!(fcntl($_, Fcntl::F_GETFL(), 0) & Fcntl::O_NONBLOCK()), 'are nobody\'s to change')
        for $r->rh, $w->wh;
    $w->blocking(1);
    $r->blocking(1);
    my $pid = child { $w->DESTROY; $r->read_message eq $long ? 0 : 1 };
    $r->close;
    $w->close;
    is(status($pid), 0, 'blocking again');
};

subtest 'the size of the pipe' => sub {
    my ($r, $w) = $class->pair;
    is($r->size, 65_536, 'size');
    is($w->size, 65_536, 'of either end');
    ok($class->max_size >= 65_536, 'max_size of the class');
    is($r->max_size, $class->max_size, 'and of an object');
    is($w->resize(10_000), 16_384, 'what the kernel gave');
    is($r->size, 16_384, 'is the size');
    is($r->capacity, 16_384, 'by its other name');
    is($w->resize_or_max(1 << 40), $w->max_size, 'at most the largest');
    is($w->resize_or_max(8192), 8192, 'or less');
    is($w->resize(0), 4096, 'at least a page');
    $w->write_message('x' x 4000);
    $w->resize(65_536);
    $w->write_message('x' x 40_000);
    $! = 0;
    is($w->resize(4096), undef, 'refused');
    is(0 + $!, POSIX::EBUSY(), '$!');
    like(Pipework::error(), qr/capacity/, 'and why');
    is($r->size, 65_536, 'nothing has changed');
};

done_testing;
