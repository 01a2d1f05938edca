# Producers that may never block: bytes that do not fit into the pipe wait in the writer. The
# consumer is slow at times, and every record arrives, compressed on the way.
use strict;
use warnings;
use Atomic::Pipe;
use IO::Select;
use Time::HiRes qw(sleep time);

alarm 10;
my ($PRODUCERS, $RECORDS) = (3, 2500);
my %options = (compression => 'zstd', compression_level => 1);

sub record {
    my ($producer, $number) = @_;
    my $lines = $number % 50 ? $number % 7 : 400;
    return join "\n", "$producer $number", map { "field$_=" . $number * $_ } 1 .. $lines;
}

my ($r, $w) = Atomic::Pipe->pair(%options);
die "compression is " . ($r->compression // 'undef') . "\n" if $r->compression ne 'zstd';
die "level is " . $w->compression_level . "\n" if $w->compression_level != 1;

# A small pipe, so that the writers meet a full one.
$w->resize(8192);
die "the size of the pipe is not known\n" if !$w->size;
die "the pipe is larger than its maximum\n" if defined $w->max_size && $w->size > $w->max_size;

my @children;
for my $producer (1 .. $PRODUCERS) {
    my $pid = fork;
    die "fork: $!" if !defined $pid;
    if (!$pid) {
        alarm 10;
        $r->close;
        $w->blocking(0);
        die "the writer still blocks\n" if $w->blocking;
        my $waited = 0;
        for my $number (1 .. $RECORDS) {
            $w->write_message(record($producer, $number));
            $waited++ if $w->pending_output;
        }
        # Half of them flush in a loop, the others leave the rest to the end of the object.
        if ($producer % 2) {
            while ($w->pending_output) {
                IO::Select->new($w->wh)->can_write(0.5);
                $w->flush;
            }
        }
        undef $w;
        exit($waited ? 0 : 3);
    }
    push @children, $pid;
}
undef $w;

sleep 0.3;
$r->blocking(0);
die "the reader still blocks\n" if $r->blocking;
$r->read_size(16_384);
die "read_size\n" if $r->read_size != 16_384;
my $select = IO::Select->new($r->rh);
my (%next, $total);
my $rounds = 0;
until ($r->eof) {
    $rounds++;
    $select->can_read(1);
    while (defined(my $message = $r->read_message)) {
        my ($producer, $number) = $message =~ /^(\d+) (\d+)/ or die "no record: $message\n";
        die "record $number of $producer out of order\n" if $number != ++$next{$producer};
        die "record $number of $producer differs\n" if $message ne record($producer, $number);
        $total++;
    }
    sleep 0.01 if $rounds % 100 == 0;
}
die "total: $total\n" if $total != $PRODUCERS * $RECORDS;
for my $pid (@children) {
    waitpid $pid, 0;
    die "a producer never met a full pipe\n" if $? >> 8 == 3;
    die "a producer ended with $?\n" if $?;
}

# A writer that is not read from: fill_buffer frees the pipe without taking a message.
($r, $w) = Atomic::Pipe->pair(use_io_select => 0);
die "use_io_select is on\n" if $r->use_io_select;
$w->resize(4096);
$w->blocking(0);
$w->write_message($_ x 3000) for 'a' .. 'h';
die "all of it cannot be in the pipe\n" if !$w->pending_output;
my $until = time + 5;
while ($w->pending_output) {
    die "the writer is not freed\n" if time > $until;
    $r->fill_buffer;
    $w->flush;
}
$w->close;
my $letters = '';
while (defined(my $message = $r->read_message)) {
    die "damaged\n" if $message ne substr($message, 0, 1) x 3000;
    $letters .= substr $message, 0, 1;
}
die "letters: $letters\n" if $letters ne 'abcdefgh';
print "done\n";
