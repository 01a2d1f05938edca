# The compiled half uses nothing of Perl that Perl 5.26 does not have.
use strict;
use warnings;
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Temp qw(tempdir);
use Test::More;

plan skip_all => 'no Devel::PPPort' if !eval { require Devel::PPPort };
my $root = dirname(dirname(abs_path(__FILE__)));
my $folder = tempdir(CLEANUP => 1);
Devel::PPPort::WriteFile("$folder/ppport.h");

sub complaints {
    my @files = @_;
    open my $output, '-|', $^X, "$folder/ppport.h", '--compat-version=5.26.0', '--nohints',
        '--nochanges', @files
        or die $!;
    return grep { /WARNING/ } readline $output;
}

open my $newer, '>', "$folder/newer.c" or die $!;
print {$newer} qq{#include "perl.h"\nint f(SV *sv) { return SvIsBOOL(sv) + newSVbool(1); }\n};
close $newer;
my @found = complaints("$folder/newer.c");
cmp_ok(scalar @found, '>', 0, 'what came later is seen');
is_deeply([complaints("$root/Pipework.xs", glob "$root/xs/*.xs $root/src/*.[ch]")], [], 'none of it is here');
done_testing;
