# Turns the manuals of Perl's modules into pages of HTML: pod.pl LIB FOLDER
#
# The names of these modules lead to their pages, all others to metacpan.org.
use strict;
use warnings;

package Manual;
use parent 'Pod::Simple::XHTML';

our %pages;    # by the name of the module

sub resolve_pod_page_link {
    my ($self, $module, $section) = @_;
    return $self->SUPER::resolve_pod_page_link($module, $section) if !defined $module || !$pages{$module};
    return $pages{$module} . (defined $section ? '#' . $self->idify($self->encode_entities($section), 1) : '');
}

package main;
use File::Find qw(find);

my ($lib, $folder) = @ARGV;
my %files;
find(
    sub {
        open my $file, '<', $_ or die "$File::Find::name: $!";
        return if !/\.pm$/ || !grep { /^=head1 NAME/ } readline $file;
        my $module = $File::Find::name =~ s{^\Q$lib\E/|\.pm$}{}gr =~ s{/}{::}gr;
        $files{$module} = $File::Find::name;
        $Manual::pages{$module} = $module =~ s/::/-/gr . '.html';
    },
    $lib
);

for my $module (sort keys %files) {
    my @others = map { $_ eq $module ? $_ : qq(<a href="$Manual::pages{$_}">$_</a>) } sort keys %files;
    my $manual = Manual->new;
    $manual->html_header(<<"END");
<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>$module</title><link rel="stylesheet" href="../plain.css">
<body><p><a href="../../index.html">The book</a>, <a href="../index.html">references</a>
<p class="pages">@others
<h1>$module</h1>
END
    $manual->html_footer('');
    $manual->html_h_level(2);
    $manual->index(1);
    $manual->anchor_items(1);
    $manual->output_string(\my $html);
    $manual->parse_file($files{$module});
    open my $page, '>:encoding(UTF-8)', "$folder/$Manual::pages{$module}" or die "$folder: $!";
    print {$page} $html;
    close $page or die "$folder: $!";
}
