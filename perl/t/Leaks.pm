package Leaks;

# Checks that an operation leaves no memory and no descriptor behind.
use strict;
use warnings;
use Exporter qw(import);
use Test::More;

our @EXPORT = qw(leaves_nothing);

# Memory that grows once may be kept; a leak grows each time.
sub leaves_nothing {
    my ($what, $times, $code) = @_;
    $code->() for 1 .. $times / 10;
    my $opened = descriptors();
    my $memory;
    for (1 .. 2) {
        my $before = kib();
        $code->() for 1 .. $times;
        $memory = kib() - $before;
        last if $memory < 256;
    }
    cmp_ok($memory, '<', 256, "$what: KiB of memory left behind");
    # A client that waits may begin to listen for deaths, which takes up to four, once.
    cmp_ok(descriptors(), '<=', $opened + 4, "$what: descriptors");
    return;
}

# Memory in use, except for pages of files, which the kernel adds and removes.
sub kib {
    open my $status, '<', '/proc/self/status' or die $!;
    my $sum = 0;
    /^Rss(?:Anon|Shmem):\s+(\d+) kB/ and $sum += $1 while readline $status;
    return $sum;
}

# Open descriptors, except the inotify instance that the library keeps once a client has waited.
sub descriptors {
    return scalar grep { (readlink // '') ne 'anon_inode:inotify' } glob '/proc/self/fd/*';
}

1;
