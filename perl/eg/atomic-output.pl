#!/usr/bin/env perl
# Runs a program that prints and sends through the same standard output. Shows lines with their number,
# and messages and bursts apart from them.
#
#   perl eg/atomic-output.pl            runs itself, as a program that does both
#   perl eg/atomic-output.pl COMMAND... runs something else
use strict;
use warnings;
use Pipework::Atomic;

if (($ARGV[0] // '') eq 'both') {
    my $w = Pipework::Atomic->from_fh('>&=', \*STDOUT, mixed_data_mode => 1);
    # So that lines stay in order with messages.
    STDOUT->autoflush(1);
    print "starting\n";
    for my $step (1 .. 3) {
        print "step $step ";
        $w->write_burst("$step of 3");
        $w->write_message(join ',', 1 .. 2000 * $step);
        print "is done\n";
    }
    exit;
}

my ($r, $w) = Pipework::Atomic->pair(mixed_data_mode => 1);
my $pid = fork // die "fork: $!\n";
if (!$pid) {
    open STDOUT, '>&', $w->wh or die "stdout: $!\n";
    exec @ARGV ? @ARGV : ($^X, (map { "-I$_" } @INC), $0, 'both') or die "exec: $!\n";
}
$w->close;
$r->blocking(1);
my $number = 0;
while (my ($type, $data) = $r->get_line_burst_or_data) {
    if ($type eq 'line') { printf "%3d %s\n", ++$number, $data =~ s/\R\z//r }
    elsif ($type eq 'burst') { print "    progress: $data\n" }
    else { printf "    a message of %d bytes\n", length $data }
}
waitpid $pid, 0;
exit($? ? 1 : 0);
