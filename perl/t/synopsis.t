# The examples of manuals and pages run: the SYNOPSIS of each module, and in the repository each example
# of docs/. So a reader can copy them.
use strict;
use warnings;
use File::Find qw(find);
use File::Temp qw(tempdir);
use FindBin ();
use lib $FindBin::Bin;
use Checkout;
use Loopback;
use Processes;
use Test::More;

alarm 120;
my $root = root();

# The lines of a POD section that are code.
sub synopsis {
    my ($pod) = @_;
    my ($section) = $pod =~ /^=head1 SYNOPSIS\n(.*?)(?=^=(?:head1|cut))/ms or return;
    return join '', grep { /^\s/ || $_ eq "\n" } split /(?<=\n)/, $section;
}

sub runs {
    my ($code, $name) = @_;
    return pass("$name: not run, " . no_loopback()) if asks_for_loopback($code) && no_loopback();
    my $folder = tempdir(CLEANUP => 1);
    open my $file, '>', "$folder/example.pl" or die $!;
    print {$file} "use strict; use warnings;\n", $code;
    close $file or die $!;
    my $text = output_of($folder, 'example.pl');
    is($?, 0, $name) or diag($text);
    return;
}

my @modules;
find(sub { push @modules, $File::Find::name if /\.pm$/ }, "$root/lib");
for my $module (sort @modules) {
    my $code = synopsis(slurp($module)) or next;
    runs($code, 'SYNOPSIS of ' . $module =~ s{^\Q$root\E/lib/}{}r);
}
my @pages = glob(checkout() ? checkout() . '/{README,docs/{,*/}*}.md' : "$root/docs/*.md");
cmp_ok(scalar @pages, '>', 3, 'there are pages');
for my $page ("$root/README.md", @pages) {
    my $nth = 0;
    runs($_, sprintf '%s, example %d', $page =~ s{.*/(?=.*/)}{}r, ++$nth) for slurp($page) =~ /^```perl\n(.*?)^```$/msg;
}
done_testing;
