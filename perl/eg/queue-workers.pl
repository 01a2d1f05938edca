#!/usr/bin/env perl
# Jobs wait in a FIFO until a worker takes them. Workers take turns under a lock of the FIFO, and each
# stops reading at the end of the job that it takes.
#
#   perl eg/queue-workers.pl
use strict;
use warnings;
use Fcntl qw(LOCK_EX LOCK_UN);
use File::Temp qw(tempdir);
use POSIX qw(mkfifo);
use Pipework::Atomic;

my $path = tempdir(CLEANUP => 1) . '/jobs';
mkfifo($path, 0600) or die "$path: $!";

sub worker {
    my ($number) = @_;
    open my $jobs, '+<', $path or die "$path: $!";
    my $r = Pipework::Atomic->from_fh('<&', $jobs);
    $r->set_exact(1);    # the bytes behind a job stay for the others
    flock $jobs, LOCK_EX or die "flock: $!";    # one at a time, those of the command as well
    my $job = $r->recv(timeout => 5);
    flock $jobs, LOCK_UN or die "flock: $!";
    print "$number: $job\n";    # work, and then lock again for the next one
}

# Open for both: then a sender need not wait for a worker, and waiting jobs are kept.
open my $kept, '+<', $path or die "$path: $!";
my $w = Pipework::Atomic->write_fifo($path);
$w->send_many(qw(lint test docs));
$w->close;
my @workers = map {
    my $pid = fork // die "fork: $!";
    if (!$pid) { worker($_); exit }
    $pid;
} 1 .. 3;
for my $pid (@workers) { waitpid $pid, 0; die "$pid failed" if $? }
