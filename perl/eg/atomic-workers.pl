#!/usr/bin/env perl
# Counts the words of files, each in a child process. Their results come back as whole messages
# through one pipe, however long they are.
#
#   perl eg/atomic-workers.pl FILE...
use strict;
use warnings;
use Pipework::Atomic;

my ($r, $w) = Pipework::Atomic->pair(compression => 'zstd');
my %children;
for my $path (@ARGV) {
    my $pid = fork // die "fork: $!\n";
    if (!$pid) {
        open my $file, '<', $path or die "$path: $!\n";
        my %count;
        while (my $line = readline $file) { $count{lc $_}++ for $line =~ /\w+/g }
        $w->write_message(join "\n", map { "$_ $count{$_}" } sort keys %count);
        exit;
    }
    $children{$pid} = $path;
}
# The pipe ends when its last writer is closed, and this process has one, too.
$w->close;

my %total;
while (my $found = $r->read_message(debug => 1)) {
    my @lines = split /\n/, $found->{message};
    printf "%s: %d words\n", $children{$found->{pid}}, scalar @lines;
    for (@lines) { my ($word, $count) = split / /; $total{$word} += $count }
}
my $failed = 0;
for my $pid (keys %children) { waitpid $pid, 0; $failed++ if $? }
my @frequent = sort { $total{$b} <=> $total{$a} || $a cmp $b } keys %total;
printf "%6d %s\n", $total{$_}, $_ for grep { defined } @frequent[0 .. 4];
exit($failed ? 1 : 0);
