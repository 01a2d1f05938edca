package Processes;

# Children of a test, and programs that it runs.
use strict;
use warnings;
use Cwd qw(abs_path);
use Exporter qw(import);
use POSIX ();

our @EXPORT = qw(child status output_of);

# Runs code in a child, and returns its number. The child exits with the number that the code returns,
# and with 99 if it dies. Nothing is destroyed.
sub child (&) {
    my ($code) = @_;
    my $pid = fork // die "fork: $!";
    return $pid if $pid;
    my $status = eval { $code->() || 0 } // do { warn $@; 99 };
    POSIX::_exit($status);
}

# Waits for a child, and returns its exit status, or the signal that ended it.
sub status { waitpid $_[0], 0; return $? & 127 ? "signal $?" : $? >> 8 }

# Runs Perl with these arguments in a folder. Returns its output on both streams; $? is its status.
sub output_of {
    my ($folder, @arguments) = @_;
    my @with = map { '-I' . abs_path($_) } grep { !ref && -d } @INC;
    my $pid = open(my $output, '-|') // die "fork: $!";
    if (!$pid) {
        chdir $folder or die "$folder: $!";
        open STDIN, '<', '/dev/null' or die $!;
        open STDERR, '>&', \*STDOUT or die $!;
        alarm 120;
        exec $^X, @with, @arguments or die $!;
    }
    my $text = do { local $/; readline $output } // '';
    close $output;
    return $text;
}

1;
