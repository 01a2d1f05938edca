# Four workers send their log records through one pipe; the collector gets each record whole.
use strict;
use warnings;
use Atomic::Pipe;

alarm 10;
$| = 1;

my $RECORDS = 60;
my ($r, $w) = Atomic::Pipe->pair;
die "reader and writer are mixed up\n"
    if !$r->is_reader || $r->is_writer || !$w->is_writer || $w->is_reader;
die "PIPE_BUF below what POSIX asks\n" if Atomic::Pipe->PIPE_BUF < 512;

# The body of a record, so that the collector can tell what it should be.
sub body {
    my ($worker, $number) = @_;
    return chr(ord('a') + $worker) x ($number * 211 % 20_000);
}

my %worker;
for my $worker (1 .. 4) {
    my $pid = fork;
    die "fork: $!" if !defined $pid;
    if (!$pid) {
        alarm 10;
        $r->close;
        for my $number (1 .. $RECORDS) {
            my $chunks = $w->write_message(join "\t", $worker, $number, body($worker, $number));
            die "chunks: $chunks\n" if $chunks !~ /^[1-9][0-9]*$/;
        }
        my $long = $w->write_message('zz' x $w->PIPE_BUF);
        die "two PIPE_BUFs went in $long chunks, not 3\n" if $long != 3;
        exit 0;
    }
    $worker{$pid} = $worker;
}
$w->close;

my (%next, $long);
while (defined(my $message = $r->read_message)) {
    if ($message eq 'zz' x $r->PIPE_BUF) {
        $long++;
        next;
    }
    my ($worker, $number, $body) = split /\t/, $message, 3;
    die "record $number of worker $worker is out of order\n" if $number != ++$next{$worker};
    die "record $number of worker $worker is damaged\n" if $body ne body($worker, $number);
}
die "not the end of the pipe\n" if !$r->eof;
die "long records: $long\n" if $long != 4;
for my $worker (1 .. 4) {
    die "worker $worker: $next{$worker} records\n" if $next{$worker} != $RECORDS;
}
for my $pid (keys %worker) {
    waitpid $pid, 0;
    die "worker $worker{$pid} ended with $?\n" if $?;
}
$r->close;

# Short plain text for a reader that knows nothing of messages: bursts.
($r, $w) = Atomic::Pipe->pair;
die "a short line should fit\n" if $w->fits_in_burst("short\n") != 6;
die "a long text should not fit\n" if defined $w->fits_in_burst('x' x (2 * $w->PIPE_BUF));
my $none = $w->write_burst('x' x (2 * $w->PIPE_BUF));
die "a burst too long should be refused\n" if defined $none;
$w->write_burst("line $_\n") or die "burst $_ was not written\n" for 1 .. 10;
undef $w;
my $handle = $r->rh;
my @lines = <$handle>;
die "lines: @lines" if join('', @lines) ne join '', map { "line $_\n" } 1 .. 10;

# Only a pipe may be taken over.
open my $file, '<', $0 or die "$0: $!";
die "a file was taken for a pipe\n" if eval { Atomic::Pipe->from_fh($file); 1 };

# The output of a command, read through the object's own buffer, and a handle of each direction.
pipe my $out, my $in or die "pipe: $!";
my $from = Atomic::Pipe->from_fh($out);
my $to   = Atomic::Pipe->from_fh('>&', $in);
close $_ for $out, $in;
$to->write_message("n$_") for 1 .. 3;
my @got = map { scalar $from->read_message } 1 .. 3;
die "got: @got\n" if "@got" ne 'n1 n2 n3';
undef $to;
die "an end was expected\n" if defined $from->read_message;
print "done\n";
