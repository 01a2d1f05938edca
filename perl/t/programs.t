# Programs written for Atomic::Pipe, Data::ReqRep::Shared and IO::FD, from their manuals: each runs
# with the modules' names exchanged, and as it is through Pipework::InsteadOf.
use strict;
use warnings;
use Cwd qw(abs_path);
use File::Basename qw(basename dirname);
use File::Temp qw(tempdir);
use FindBin ();
use lib $FindBin::Bin;
use Checkout;
use Loopback;
use Processes;
use Test::More;

alarm 200;
my $here = dirname(abs_path(__FILE__));
my $root = dirname($here);
my %ours = (
    'Atomic::Pipe'         => 'Pipework::Atomic',
    'Data::ReqRep::Shared' => 'Pipework::ReqRep',
    'IO::FD'               => 'Pipework::FD',
);
my ($original) = map { qr/\b($_)\b/ } join '|', sort keys %ours;

sub runs {
    my ($name, $folder, @command) = @_;
    my $text = output_of($folder, @command);
    ok(!$? && $text eq "done\n", $name) or diag($text, "\n$name: ended with $?");
    return;
}

for my $program (sort glob "$here/programs/*.pl") {
    my $name = basename($program);
    my $folder = tempdir(CLEANUP => 1);
    my $code = slurp($program);
    my %names = map { $_ => 1 } $code =~ /^use $original/mg;
    open my $file, '>', "$folder/$name" or die $!;
    print {$file} $code =~ s/$original/$ours{$1}/gr;
    close $file or die $!;
    SKIP: {
        skip no_loopback(), 2 if asks_for_loopback($code) && no_loopback();
        runs("$name, with our names", $folder, $name);
        skip 'Pipework::InsteadOf is not there', 1 if !-e "$root/lib/Pipework/InsteadOf.pm";
        my $modules = join ',', sort keys %names;
        runs("$name, as it is", $folder, "-MPipework::InsteadOf=$modules", $program);
    }
}
done_testing;
