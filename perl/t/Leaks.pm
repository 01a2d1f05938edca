package Leaks;

# Checks that an operation leaves no memory and no descriptor behind.
use strict;
use warnings;
use Exporter qw(import);
use Test::More;

our @EXPORT = qw(leaves_nothing);

# A process that begins to listen for deaths opens descriptors for its other handles, too.
BEGIN { $ENV{PIPEWORK_DEATH_THREAD} = 'off' }

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
    is(descriptors(), $opened, "$what: descriptors");
    return;
}

# Memory in use, except for pages of files, which the kernel adds and removes.
sub kib {
    open my $status, '<', '/proc/self/status' or die $!;
    my $sum = 0;
    /^Rss(?:Anon|Shmem):\s+(\d+) kB/ and $sum += $1 while readline $status;
    return $sum;
}

sub descriptors {
    opendir my $all, '/proc/self/fd' or die $!;
    return scalar(() = readdir $all);
}

1;
