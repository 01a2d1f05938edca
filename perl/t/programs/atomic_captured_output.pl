# Mixed data: a child's STDOUT carries prints, bursts and messages at once, compressed with a
# dictionary. The reader separates them, and may see the bytes on the wire.
use strict;
use warnings;
use Atomic::Pipe;
use File::Temp qw(tempdir);
use IO::Handle;
use IO::Select;
use POSIX qw(mkfifo);

alarm 10;
my $folder = tempdir(CLEANUP => 1);
my $dictionary = join '', map { qq({"event":"name$_","level":"info","pid":$_}) } 1 .. 100;
my $big = join ',', map { qq({"event":"name$_","level":"info"}) } 1 .. 2000;

my ($r, $w) = Atomic::Pipe->pair(
    mixed_data_mode        => 1,
    compression            => 'zstd',
    compression_dictionary => $dictionary,
    keep_compressed        => 1,
);
my ($none, $nothing) = $r->get_line_burst_or_data;
die "something came from nothing\n" if defined $none || defined $nothing;

my $pid = fork;
die "fork: $!" if !defined $pid;
if (!$pid) {
    alarm 10;
    open STDOUT, '>&', $w->{wh} or die "Could not clone write handle: $!";
    STDOUT->autoflush(1);
    print "A line!\n";
    print 'Start a line ...';
    $w->write_burst("This is a burst message\n\n\n") or die 'no burst';
    $w->write_message($big);
    $w->write_message("\x0E\x0F\x10 control characters \x0F");
    print "... Finish the line we started earlier\n";
    system 'echo from a command; echo -n the end' and die 'echo';
    exit 0;
}
undef $w;

# All that comes, until the child is gone.
my @events;
my $select = IO::Select->new($r->rh);
until ($r->eof) {
    $select->can_read(1);
    while (1) {
        my ($type, $data, %more) = $r->get_line_burst_or_data;
        last if !defined $type;
        push @events, [$type, $data, \%more];
    }
}
waitpid $pid, 0;
die "the child ended with $?\n" if $?;
my @expect = (
    [line => "A line!\n"],
    [burst => "This is a burst message\n\n\n"],
    [message => $big],
    [message => "\x0E\x0F\x10 control characters \x0F"],
    [line => "Start a line ...... Finish the line we started earlier\n"],
    [line => "from a command\n"],
    [line => 'the end'],
);
die 'events: ' . join(' ', map { $_->[0] } @events) . "\n" if @events != @expect;
for my $n (0 .. $#expect) {
    my ($type, $data, $more) = @{$events[$n]};
    die "event $n is a $type: $data\n" if $type ne $expect[$n][0] || $data ne $expect[$n][1];
    die "event $n: compressed bytes of a line\n" if $type eq 'line' && %$more;
    next if $type eq 'line';
    die "event $n: no compressed bytes\n" if !defined $more->{compressed};
    die "event $n is not smaller\n"
        if length $data > 1000 && length $more->{compressed} >= length $data;
}

# A line that has not ended can be looked at, as often as one likes.
($r, $w) = Atomic::Pipe->pair;
$_->set_mixed_data_mode for $r, $w;
$w->wh->autoflush(1);
print {$w->wh} 'Passw';
for my $time (1, 2) {
    my ($type, $data) = $r->get_line_burst_or_data(peek_line => 1);
    die "peek $time\n" if !defined $type || $type ne 'peek' || $data ne 'Passw';
}
print {$w->wh} 'ord: ';
my ($type, $data) = $r->get_line_burst_or_data;
die "a line that has not ended came: $data\n" if defined $type;
($type, $data) = $r->get_line_burst_or_data(peek_line => 1);
die "the second peek: $data\n" if $type ne 'peek' || $data ne 'Password: ';
print {$w->wh} "x\n";
($type, $data) = $r->get_line_burst_or_data(peek_line => 1);
die "the whole line: $data\n" if $type ne 'line' || $data ne "Password: x\n";

# Compression switched on later, through a fifo; list and scalar context of read_message.
mkfifo("$folder/fifo", 0600) or die "mkfifo: $!";
$r = Atomic::Pipe->read_fifo("$folder/fifo");
$w = Atomic::Pipe->write_fifo("$folder/fifo");
$_->set_compression('zstd', 5) for $r, $w;
$_->set_compression_dictionary($dictionary) for $r, $w;
$r->set_keep_compressed(1);
die "accessors\n"
    if !$r->keep_compressed || $w->compression_level != 5
    || $w->compression_dictionary ne $dictionary;
$w->write_message($big) for 1 .. 3;
my ($message, $compressed) = $r->read_message;
die "list context\n"
    if $message ne $big || !length $compressed || length $compressed >= length $big;
my $scalar = $r->read_message;
die "scalar context\n" if $scalar ne $big;
my $debug = $r->read_message(debug => 1);
die "debug\n" if ref $debug ne 'HASH' || $debug->{compressed} ne $compressed;
$_->set_compression(undef) for $r, $w;
die "the dictionary should stay\n" if $r->compression || $r->compression_dictionary ne $dictionary;
$w->write_message('plain');
my @plain = $r->read_message;
die "plain: @plain\n" if "@plain" ne 'plain';
die "an unknown algorithm\n" if eval { Atomic::Pipe->pair(compression => 'gzip'); 1 };
print "done\n";
