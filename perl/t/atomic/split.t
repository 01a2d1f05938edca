# One object with both ends, and clones.
use strict;
use warnings;
use Test::More;
use Pipework::Atomic;

alarm 120;

my $class = 'Pipework::Atomic';

subtest 'both ends in one' => sub {
    my $p = $class->new;
    is_deeply([$p->is_reader, $p->is_writer], [undef, undef], 'neither only');
    ok($p->rh && $p->wh, 'both handles');
    is($p->blocking, 1, 'both block');
    $p->read_blocking(0);
    is($p->blocking, undef, 'they differ');
    is_deeply([$p->read_blocking, $p->write_blocking], [0, 1], 'each by itself');
    is($p->blocking(0), 0, 'both set');
    is_deeply([$p->read_message], [], 'nothing there');
    $p->write_message('to itself');
    is($p->read_message, 'to itself', 'a message');
    $p->close;
    is_deeply([$p->rh, $p->wh, $p->blocking], [undef, undef, undef], 'closed');
};

subtest 'made one end' => sub {
    my $p = $class->new;
    is($p->reader, 1, 'a reader now');
    is_deeply([$p->is_reader, $p->wh], [1, undef], 'only');
    is($p->reader, 1, 'again');
    ok(!eval { $p->writer; 1 }, 'too late');
    like($@, qr/^pipe was set to reader, cannot set to writer at \Q$0/, 'words');
    is($p->eof, 1, 'eof once the writing end is given up');
    $p = $class->new;
    is($p->writer, 1, 'a writer now');
    is_deeply([$p->is_writer, $p->rh], [1, undef], 'only');
    ok(!eval { $p->reader; 1 }, 'too late');
    like($@, qr/^pipe was set to writer, cannot set to reader at \Q$0/, 'words');
    ok(!eval { $p->write_message('x'); 1 }, 'write_message once the reading end is given up');
    like($@, qr/^Disconnected pipe at \Q$0/, 'words');
};

subtest 'clones of both ends' => sub {
    my $p = $class->new(mine => 5, compression => 'zstd');
    my ($r, $w) = ($p->clone_reader, $p->clone_writer);
    is($r->is_reader, 1, 'a reader');
    is($w->is_writer, 1, 'a writer');
    is_deeply([$r->{mine}, $r->compression], [5, 'zstd'], 'settings come along');
    $p->close;
    $w->write_message('x' x 20_000);
    is($r->read_message, 'x' x 20_000, 'through the clones');
    $w->close;
    is($r->eof, 1, 'the end comes when all are closed');
};

subtest 'clones share a buffer' => sub {
    my ($r, $w) = $class->pair;
    my $other = $r->clone_reader;
    isnt(fileno $r->rh, fileno $other->rh, 'handles of their own');
    $w->write_message("m$_") for 1 .. 6;
    is_deeply(
        [map { ($r->read_message, $other->read_message) } 1 .. 3],
        [map { "m$_" } 1 .. 6],
        'no message is torn'
    );
    $r->close;
    $w->write_message('still');
    is($other->read_message, 'still', 'a clone lives on');
    $w->write_message('and');
    is($other->fill_buffer, 19, 'something is buffered');
    is($other->clone_reader->read_message, 'and', 'for all of them');
};

subtest 'writers have keys of their own' => sub {
    my ($r, $w) = $class->pair(mixed_data_mode => 1);
    my $other = $w->clone_writer;
    isnt($w->key, $other->key, 'two keys');
    $other->write_burst('mixed');
    is_deeply([$r->get_line_burst_or_data], [burst => 'mixed'], 'the same mode');
    $r->blocking(1);
    is($r->clone_reader->blocking, 1, 'and the same flag');
    $w->blocking(0);
    is($w->clone_writer->blocking, 0, 'and the same flag');
};

subtest 'what is pending stays' => sub {
    my ($r, $w) = $class->pair;
    $w->blocking(0);
    $w->write_message('x' x 100_000) for 1 .. 3;
    is($w->pending_output, 1, 'more than a pipe holds');
    my $clone = $w->clone_writer;
    is($clone->pending_output, 0, 'the clone has nothing');
    $r->blocking(0);
    my $read = 0;
    while ($w->pending_output) { $w->flush; $read += () = $r->read_message }
    $read += () = $r->read_message for 1 .. 3;
    is($read, 3, 'it comes from the one');
};

subtest 'no descriptor is lost' => sub {
    my $count = sub {
        opendir my $dir, '/proc/self/fd' or die;
        scalar grep { /\d/ } readdir $dir;
    };
    my $before = $count->();
    for (1 .. 50) {
        my $p = $class->new;
        my ($r, $w) = ($p->clone_reader, $p->clone_writer);
        $p->reader;
        $_->clone_reader for $r, $p;
    }
    is($count->(), $before, 'all are closed');
};

done_testing;
