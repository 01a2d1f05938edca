#!/usr/bin/env perl
# Web workers that share one model: a process of its own loads it, and takes all waiting requests as one
# batch.
#
#   perl eg/web-workers.pl
use strict;
use warnings;
use List::Util qw(pairkeys pairvalues);
use Pipework::ReqRep;

my %segment = (path => "/dev/shm/model-$$", slots => 64);

# One run of the model answers the whole batch.
sub run {
    return map { my @words = split; @words . ' words' } @_;
}

# The model's process.
sub model {
    my $server = Pipework::ReqRep->open_or_create(%segment);
    while (my @batch = $server->recv_wait_multi(32)) {    # the waiting requests: texts and ids, in turn
        my @ids = pairvalues @batch;
        $server->reply(shift @ids, $_) for run(pairkeys @batch);
    }
}

# The process of a web worker.
sub worker {
    my $client = Pipework::ReqRep::Client->open(path => $segment{path});
    my $answer = $client->call('how many words', timeout => 5);
    print "process $$: $answer\n";
}

my $segment = Pipework::ReqRep->open_or_create(%segment);
my @children = map {
    my $pid = fork // die "fork: $!";
    if (!$pid) { $_->(); exit }
    $pid;
} (\&model, (\&worker) x 8);

my ($model, @workers) = @children;
my $failed = grep { waitpid $_, 0; $? } @workers;
kill TERM => $model;
waitpid $model, 0;
$segment->unlink;
die "$failed workers failed" if $failed;
