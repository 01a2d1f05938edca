#!/usr/bin/env perl
# Runs many commands, two at a time. The two processes that run them take commands as calls. If one of
# these processes is killed, its caller gets an error.
#
#   perl eg/job-runner.pl
use strict;
use warnings;
use Pipework::ReqRep;

# Two runners, each of which takes one command at a time. Its reply is the output and the status.
my $jobs = Pipework::ReqRep->create(slots => 64);
my @runners;
for my $nth (1 .. 2) {
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        while (my ($command, $id) = $jobs->recv_wait) {
            open my $output, '-|', $command or die "fork: $!";
            while (read $output, my $bytes, 4096) { $jobs->part($id, $bytes) }
            close $output;
            $jobs->reply($id, "\0$?");
        }
        exit;
    }
    push @runners, $pid;
}

my $client = Pipework::ReqRep::Client->open(fd => $jobs->memfd);
my @commands = ('echo job 1', 'echo job 2; exit 3', 'echo job 3; kill -9 $$', 'echo job 4');
my %command = map { $client->send_wait($_) => $_ } @commands;
while (my ($reply, $id) = $client->recv_any) {
    print "[$command{$id}] ";
    if (!defined $reply) { print "lost: $!\n"; next }    # its runner was killed
    my ($output, $status) = $reply =~ /\A(.*)\0(\d+)\z/s;
    print $status & 127 ? 'killed by signal ' . ($status & 127) : 'exit status ' . ($status >> 8);
    print "\n$output";
}
kill TERM => @runners;
waitpid $_, 0 for @runners;
