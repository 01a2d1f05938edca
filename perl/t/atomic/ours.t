# Methods and options that Atomic::Pipe does not have.
use strict;
use warnings;
use Test::More;
use FindBin ();
use lib "$FindBin::Bin/..";
use Asleep;
use Processes;
use Time::HiRes qw(time);
use POSIX ();
use Pipework::Atomic;

alarm 120;

my $class = 'Pipework::Atomic';

subtest 'send_many' => sub {
    my ($r, $w) = $class->pair;
    is($w->send_many(map { "m$_" } 1 .. 50), 50, 'how many');
    is_deeply([map { scalar $r->read_message } 1 .. 50], [map { "m$_" } 1 .. 50], 'in their order');
    is($w->send_many, 0, 'none');
    my $pid = child {
        $w->close;
        scalar grep { $r->recv(5) eq 'x' x 100_000 } 1 .. 4;
    };
    is($w->send_many(('x' x 100_000) x 2), 2, 'it waits');
    $w->blocking(0);
    is($w->send_many(('x' x 100_000) x 2), 2, 'or not');
    $w->close;
    is(status($pid), 4, 'all whole');
    $r->close;
};

subtest 'recv' => sub {
    my ($r, $w) = $class->pair;
    $r->blocking(0);
    $w->write_message('m');
    is($r->recv, 'm', 'a message');
    for my $secs (0, 0.2, '0.1') {
        my $start = time;
        ok(!eval { $r->recv($secs); 1 }, 'none in time');
        is($@->kind, 'TimedOut', 'the kind');
        is(0 + $!, POSIX::ETIMEDOUT(), '$!');
        cmp_ok(time - $start, '>=', $secs * 0.9, 'not before');
    }
    for my $forever (undef, -1, 'inf', 'nan') {
        my $pid = fork // die;
        if (!$pid) { until_asleep; $w->write_message('late'); POSIX::_exit(0) }
        is($r->recv($forever), 'late', 'for ever');
        waitpid $pid, 0;
    }
    $w->close;
    ok(!eval { $r->recv; 1 }, 'the end');
    is($@->kind, 'Closed', 'the kind');
    like("$@", qr/^atomic recv: /, 'in words');
};

subtest 'next_item' => sub {
    my ($r, $w) = $class->pair(mixed_data_mode => 1, compression => 'zstd', keep_compressed => 1);
    syswrite $w->wh, "line\r\n";
    $w->write_burst('burst');
    $w->write_message('message');
    is_deeply($r->next_item(1), {type => 'line', data => "line\r\n"}, 'a line');
    my $burst = $r->next_item(1);
    ok(delete $burst->{compressed}, 'compressed');
    is_deeply($burst, {type => 'burst', data => 'burst'}, 'a burst');
    my $message = $r->next_item(1);
    ok(delete $message->{compressed}, 'compressed');
    is_deeply($message, {type => 'message', data => 'message', writer => $w->key, parts => 1},
        'a message');
    ok(!eval { $r->next_item(0); 1 } && $@->kind eq 'TimedOut', 'none');
    my ($plain, $writer) = $class->pair;
    $writer->write_message('x');
    is($plain->next_item(1)->{data}, 'x', 'in a plain stream, too');
    ok(!eval { $r->recv(1); 1 } && $@->kind eq 'Invalid', 'recv is for plain ones');
};

subtest 'set_exact' => sub {
    my ($r, $w) = $class->pair;
    $w->send_many(qw(one two three four five));
    $r->set_exact(2);
    is_deeply([map { $r->recv(5) } 1 .. 2], [qw(one two)], 'two');
    my $other = $class->from_fh('<&', $r->rh);
    $other->set_exact(1);
    is($other->recv(5), 'three', 'the rest is there for another reader');
    is($r->recv(5), 'four', 'and again for this one');
    $r->set_exact(0);
    is($r->recv(5), 'five', 'as at first');
    is($w->set_exact(1), undef, 'nothing on a writer');
    $r->close;
    ok(!eval { $class->set_exact(1); 1 }, 'no object');
};

subtest 'capacity' => sub {
    my ($r, $w) = $class->pair;
    is($r->capacity, 65_536, 'capacity');
    $r->close;
    ok(!eval { $r->capacity; 1 }, 'or thrown');
    isa_ok($@, 'Pipework::Error');
    is($r->size, undef, 'where size has undef');
};

subtest 'key' => sub {
    my ($r, $w) = $class->pair;
    like($w->key, qr/^$$:\d+$/, 'the process and a number');
    is($r->torn, undef, 'nothing was lost');
    ok(!eval { $r->key; 1 }, 'a reader has none');
};

subtest 'options that make no sense' => sub {
    for my $name (qw(max_message max_unfinished)) {
        for my $wrong (-1, 0, 'many') {
            ok(!eval { $class->pair($name => $wrong); 1 }, "$name => $wrong");
            like($@, qr/^$name is a number of bytes from 1, and not '$wrong' at \Q$0\E /, 'says so');
        }
    }
    ok(!eval { $class->pair(on_torn => 'x'); 1 }, 'on_torn that cannot be called');
    like($@, qr/^on_torn is a code reference at \Q$0\E /, 'is said at once');
    ok(!eval { $class->pair(compression => 'zstd', compression_level => 99); 1 }, 'a level beyond all');
    like($@, qr/set zstd level: invalid argument/, 'names the level');
};

subtest 'limits' => sub {
    my ($r, $w) = $class->pair(max_message => 10, max_unfinished => 100, spin => 0);
    $w->write_message('x' x 10);
    is($r->recv(1), 'x' x 10, 'as long as it may be');
    $w->write_message('x' x 11);
    ok(!eval { $r->recv(1); 1 } && $@->kind eq 'TooLong', 'too long');
    is($@->torn->{kind}, 'TooLong', 'and whose');
};

done_testing;
