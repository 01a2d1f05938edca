# The programs in eg/ run.
use strict;
use warnings;
use Test::More;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use Pipework::Atomic;

alarm 120;

my $eg = abs_path(dirname(__FILE__) . '/../../eg');

# What a program prints.
sub output {
    my ($program, @arguments) = @_;
    open my $out, '-|', $^X, '-w', (map { '-I' . abs_path($_) } grep { -d } @INC), "$eg/$program",
        @arguments or die;
    my $text = do { local $/; readline $out };
    ok(close $out, "$program: its status");
    return $text;
}

my $workers = output('atomic-workers.pl', "$eg/atomic-workers.pl", "$eg/atomic-output.pl");
like($workers, qr/^\Q$eg\E\/atomic-workers\.pl: \d\d+ words$/m, 'each file');
like($workers, qr/^\Q$eg\E\/atomic-output\.pl: \d\d+ words$/m, 'each file');
is(output('atomic-output.pl'), <<'TEXT', 'lines, bursts and messages');
  1 starting
    progress: 1 of 3
    a message of 8892 bytes
  2 step 1 is done
    progress: 2 of 3
    a message of 18892 bytes
  3 step 2 is done
    progress: 3 of 3
    a message of 28892 bytes
  4 step 3 is done
TEXT
is(output('atomic-output.pl', 'echo', 'only text'), "  1 only text\n", 'any program');

my $called = output('tool-server.pl');
like($called, qr/\A2 \+ 40 = 42\nthis folder: [1-9]\d* KiB\nrefused: no second number\n/, 'answers');
my $debug = 'DEBUG: in add(), and this line was to be removed';
like($called, qr/^\Q$debug\E\nprogress: looking at \.\n\Q$debug\E\n\z/m, 'beside what was printed');
done_testing;
