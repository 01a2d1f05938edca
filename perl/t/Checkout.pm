package Checkout;

# Files beside the distribution that tests may use, only in the project's repository: beside an
# unpacked tarball there may be anything.
use strict;
use warnings;
use Cwd qw(abs_path);
use Exporter qw(import);
use File::Basename qw(dirname);

our @EXPORT = qw(root checkout built slurp);

# The folder of the distribution.
sub root { return dirname(dirname(abs_path(__FILE__))) }

# The repository, or undef. A tarball does not have `dev`.
sub checkout {
    my $root = root();
    return -e "$root/dev" && -e "$root/../crates/pipework-c/Cargo.toml" ? "$root/.." : undef;
}

# Where the repository leaves what it builds, or undef.
sub built {
    my $checkout = checkout() // return undef;
    return $ENV{CARGO_TARGET_DIR} // "$checkout/target";
}

# The bytes of a file.
sub slurp {
    my ($path) = @_;
    open my $file, '<:raw', $path or die "$path: $!";
    local $/;
    return readline($file) // '';
}

1;
