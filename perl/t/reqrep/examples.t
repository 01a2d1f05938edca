# The programs in eg/ run.
use strict;
use warnings;
use Test::More;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use Pipework::ReqRep;

alarm 120;

my $eg = abs_path(dirname(__FILE__) . '/../../eg');

# What a program prints.
sub lines {
    my ($program, @arguments) = @_;
    my @with = map { '-I' . abs_path($_) } grep { -d } @INC;
    open my $out, '-|', $^X, '-w', @with, "$eg/$program", @arguments or die "$program: $!";
    my @lines = readline $out;
    ok(close $out, "$program: its status");
    return sort @lines;
}

is_deeply([lines('reqrep-prefork.pl', '1 + 1', 'die "no\n"', 'kill 9, $$', 'uc "text"')], [
    "1 + 1: 2\n",
    "die \"no\\n\": failed: no\n",
    "kill 9, \$\$: failed: Connection reset by peer\n",
    "uc \"text\": TEXT\n",
], 'a process for each request');
is_deeply([lines('reqrep-loop.pl', 9)], [map { "$_: $_ tseuqer\n" } 0 .. 8], 'event loops');
done_testing;
