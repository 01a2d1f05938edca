# A copy program that takes handles and descriptors alike, as the routines have Perl's names.
use strict;
use warnings;
use Fcntl qw(:DEFAULT :seek);
use File::Temp qw(tempdir);
use IO::FD::DWIM ':all';

alarm 10;
my $folder = tempdir(CLEANUP => 1);
my $text = join '', map { "line $_: " . 'x' x ($_ % 100) . "\n" } 1 .. 2000;

# Any of the two may be a handle.
sub copy {
    my ($from, $to) = @_;
    my $total = 0;
    while (1) {
        my $got = sysread $from, my $buffer, 1000;
        die "sysread: $!" if !defined $got;
        last if !$got;
        my $sent = 0;
        while ($sent < $got) {
            my $n = syswrite $to, $buffer, $got - $sent, $sent;
            die "syswrite: $!" if !defined $n;
            $sent += $n;
        }
        $total += $sent;
    }
    return $total;
}

# sysopen gives a descriptor, open a handle.
sysopen(my $first, "$folder/first", O_RDWR | O_CREAT, 0644) // die "sysopen: $!";
die "that is no descriptor: $first\n" if ref $first || $first !~ /^\d+$/;
die "fileno of a descriptor\n" if fileno($first) != $first;
my $wrote = syswrite $first, $text;
die "wrote $wrote\n" if $wrote != length $text;
die "tell: " . sysseek($first, 0, SEEK_CUR) . "\n" if sysseek($first, 0, SEEK_CUR) != length $text;
defined sysseek $first, 0, SEEK_SET or die "seek: $!";

open my $second, '+>', "$folder/second" or die "open: $!";
die "from a descriptor to a handle\n" if copy($first, $second) != length $text;
die "fileno of a handle\n" if fileno($second) != CORE::fileno($second);
defined sysseek $second, 0, SEEK_SET or die "seek: $!";

sysopen(my $third, "$folder/third", O_RDWR | O_CREAT, 0644) // die "sysopen: $!";
die "from a handle to a descriptor\n" if copy($second, $third) != length $text;

# The sizes, by handle, descriptor and path.
for my $file ($first, $second, $third, "$folder/third") {
    my @stat = stat $file;
    die "stat of $file has " . @stat . " fields\n" if @stat != 13;
    die "stat of $file: $stat[7]\n" if $stat[7] != length $text;
}
my @link = lstat "$folder/first";
die "lstat\n" if $link[1] != (stat $first)[1];

# Slurp both kinds.
defined sysseek $_, 0, SEEK_SET or die "seek: $!" for $second, $third;
for my $file ($second, $third) {
    my $all = do { local $/; readline $file };
    die "slurp of $file\n" if $all ne $text;
}

# Through a pipe to a child: descriptors of pipe, and its STDOUT is a handle.
pipe(my $r, my $w) // die "pipe: $!";
my $pid = fork;
die "fork: $!" if !defined $pid;
if (!$pid) {
    alarm 10;
    close $r;
    defined sysseek $third, 0, SEEK_SET or die "seek: $!";
    open my $out, '>&=', $w or die "open: $!";
    copy($third, $out);
    close $out or die "close: $!";
    exit 0;
}
close $w;
open my $fourth, '>', "$folder/fourth" or die "open: $!";
die "through a pipe\n" if copy($r, $fourth) != length $text;
waitpid $pid, 0;
die "the child ended with $?\n" if $?;
for my $file ($first, $second, $third, $fourth, $r) {
    my $closed = close $file;
    die "close of $file: $!\n" if !defined $closed;
}
for my $name (qw(first second third fourth)) {
    die "$name is not whole\n" if -s "$folder/$name" != length $text;
}
print "done\n";
