# Threads of Perl: each has objects of its own, on the same pipe.
use strict;
use warnings;
use Config;
use Test::More;
use FindBin ();
use lib "$FindBin::Bin/..";
use Asleep;

BEGIN {
    plan skip_all => 'this perl has no threads' if !$Config{useithreads};
    require threads;
    threads->import;
}
use Pipework::Atomic;

alarm 120;

my $class = 'Pipework::Atomic';
my $long = 'x' x 200_000;

sub descriptors {
    opendir my $dir, '/proc/self/fd' or die;
    return scalar grep { /\d/ } readdir $dir;
}

subtest 'writers' => sub {
    my ($r, $w) = $class->pair;
    my $key = $w->key;
    my @threads = map {
        my $letter = chr 96 + $_;
        threads->create(sub { $w->write_message($letter x 50_000) for 1 .. 10; $w->key });
    } 1 .. 4;
    my %count;
    for (1 .. 40) {
        my $message = $r->read_message;
        my $letter = substr $message, 0, 1;
        $count{$letter}++ if $message eq $letter x 50_000;
    }
    is_deeply(\%count, {map { $_ => 10 } 'a' .. 'd'}, 'whole messages');
    my %keys = map { $_->join => 1 } @threads;
    is(keys %keys, 4, 'a key for each');
    ok(!$keys{$key} && $w->key eq $key, 'and the first has its own');
    $w->close;
    is($r->eof, 1, 'no end is left in a thread');
};

subtest 'readers share a buffer' => sub {
    my ($r, $w) = $class->pair;
    $w->write_message("m$_") for 1 .. 100;
    my @threads = map {
        threads->create(
            {context => 'list'},
            sub {
                map { scalar $r->read_message } 1 .. 25;
            }
        )
    } 1 .. 4;
    my @found = map { $_->join } @threads;
    is_deeply([sort @found], [sort map { "m$_" } 1 .. 100], 'each message once');
    $w->write_message('mine');
    is($r->read_message, 'mine', 'the first one goes on');
};

subtest 'what is pending stays where it was' => sub {
    my ($r, $w) = $class->pair;
    $w->blocking(0);
    $w->write_message($long);
    is(threads->create(sub { $w->pending_output })->join, 0, 'nothing in the thread');
    is($w->pending_output, 1, 'here');
    my $thread = threads->create(sub { length $r->read_message });
    $w->flush(blocking => 1);
    is($thread->join, 200_000, 'and read whole there');
};

subtest 'settings' => sub {
    my ($r, $w) = $class->pair(mixed_data_mode => 1, compression => 'zstd', mine => 4);
    threads->create(sub { $w->write_burst($w->{mine} . $w->blocking) })->join;
    is_deeply([$r->get_line_burst_or_data], [burst => '41'], 'come along');
    is(threads->create(sub { $r->blocking . $r->{in_buffer_size} })->join, '00',
        'of a reader, too');
};

subtest 'closed in one thread' => sub {
    my ($r, $w) = $class->pair;
    threads->create(sub { $_->close for $r, $w })->join;
    $w->write_message('open');
    is($r->read_message, 'open', 'is open in the other');
};

subtest 'destroyed objects' => sub {
    my ($r, $w) = $class->pair;
    $r->DESTROY;
    my $why = threads->create(
        sub {
            eval { $r->read_message };
            $@;
        }
    )->join;
    like($why, qr/^Attempted to use a destroyed/, 'stay so');
};

subtest 'a waiting reader' => sub {
    my ($r, $w) = $class->pair;
    my $thread = threads->create(sub { $r->read_message });
    until_threads_sleep;
    $w->write_message('for the thread');
    is($thread->join, 'for the thread', 'gets it');
};

subtest 'descriptors' => sub {
    my ($r, $w) = $class->pair;
    my $before = descriptors();
    threads->create(sub { $w->write_message('x') })->join for 1 .. 10;
    my $after = descriptors();
    # The first clone of a reader makes an eventfd, which stays.
    cmp_ok($after - $before, '<=', 1, 'are closed with the threads');
};

done_testing;
