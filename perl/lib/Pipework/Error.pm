package Pipework::Error;
use 5.026;
use strict;
use warnings;
use overload '""' => sub { $_[0]{text} }, bool => sub { 1 }, fallback => 1;

# The kinds by name, as in the header of the C library.
my @names = qw(
    Ok WouldBlock TimedOut Interrupted Closed TooLong Stale PeerDied NoServer Torn Corrupt
    Incompatible Unsupported Invalid Os Failed
);

sub kind   { $names[$_[0]{kind}] // 'Bug' }
sub op     { $_[0]{op} }
sub errno  { $_[0]{errno} }
sub done   { $_[0]{done} }
sub torn   { $_[0]{torn} }
sub reason { $_[0]{reason} }
sub caught { my ($class, $kind) = @_; return ref $@ && $@->isa($class) && (!defined $kind || $@->kind eq $kind) ? $@ : undef }

1;
