# Streams the lines of standard input through Atomic::Pipe, from forked writers to one reader, in mixed mode.
#
# perl atomic_pipe.pl LEVEL WRITERS, where LEVEL is a zstd level or "plain". Prints one line of five numbers: messages, payload
# bytes, seconds on the clock, CPU seconds of the writers, CPU seconds of the reader. Reading the input and forking are not counted.
use strict;
use warnings;
use Atomic::Pipe;
use IO::Select;
use Time::HiRes qw(time);

my ($level, $writers) = @ARGV;
chomp(my @records = <STDIN>);

my @zstd = $level eq 'plain' ? () : (compression => 'zstd', compression_level => $level);
my ($r, $w) = Atomic::Pipe->pair(mixed_data_mode => 1, @zstd);
pipe(my $go_seen, my $go) or die "pipe: $!";

for my $nth (0 .. $writers - 1) {
    my $pid = fork() // die "fork: $!";
    next if $pid;
    $r->close;
    close $go;
    sysread($go_seen, my $nothing, 1);
    for (my $at = $nth; $at < @records; $at += $writers) {
        $w->write_message($records[$at]);
    }
    $w->close;
    exit 0;
}
$w->close;

my ($user, $system) = times;
my $start = time;
close $go;
my ($messages, $bytes) = (0, 0);
my $readable = IO::Select->new($r->rh);
while (1) {
    my ($type, $data) = $r->get_line_burst_or_data;
    if (defined $type) {
        $messages++;
        $bytes += length $data;
    }
    else {
        last if $r->eof;
        $readable->can_read;
    }
}
my $seconds = time - $start;
my ($user_end, $system_end) = times;
1 while wait != -1;
my (undef, undef, $child_user, $child_system) = times;
printf "%d %d %.6f %.6f %.6f\n", $messages, $bytes, $seconds, $child_user + $child_system,
    $user_end + $system_end - $user - $system;
