package Pipework;
use 5.026;
use strict;
use warnings;
use Pipework::Error ();
use XSLoader        ();

# Losses that a program may want to be silent about: `no warnings 'pipework'`.
warnings::register_categories('pipework');

our $VERSION = '0.1.0';
XSLoader::load('Pipework', $VERSION);

# `use Pipework::Atomic 0.026` asks for an interface, not for an edition of ours: programs that were
# written for the original name its version. Each module says up to which one it keeps.
sub accept_versions {
    my ($class, $original) = @_;
    no strict 'refs';
    *{"${class}::VERSION"} = sub {
        my ($self, $wanted) = @_;
        return ${"${class}::VERSION"} if @_ < 2;
        return ${"${class}::VERSION"} if version->parse($wanted) <= version->parse($original);
        return $self->UNIVERSAL::VERSION($wanted);
    };
    return;
}

1;
