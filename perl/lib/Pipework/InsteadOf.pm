package Pipework::InsteadOf;
use 5.026;
use strict;
use warnings;
use Carp ();

our $VERSION = '0.1.0';

# The name by which a program knows a package of ours; messages use it.
our %original;

# The modules of one original come together, as they are installed.
my @distributions = (
    { 'Atomic::Pipe' => 'Pipework::Atomic' },
    {
        'Data::ReqRep::Shared'              => 'Pipework::ReqRep',
        'Data::ReqRep::Shared::Client'      => 'Pipework::ReqRep::Client',
        'Data::ReqRep::Shared::Int'         => 'Pipework::ReqRep::Int',
        'Data::ReqRep::Shared::Int::Client' => 'Pipework::ReqRep::Int::Client',
    },
    {
        'IO::FD'            => 'Pipework::FD',
        'IO::FD::Constants' => 'Pipework::FD::Constants',
        'IO::FD::DWIM'      => 'Pipework::FD::DWIM',
    },
);
my %packages = map {
    my $all = $_;
    map { $_ => $all } keys %$all;
} @distributions;

# The versions of the originals that have these interfaces.
my %versions = ('Atomic::Pipe' => '0.027', 'Data::ReqRep::Shared' => '0.07', 'IO::FD' => 'v0.3.9');

sub import {
    my ($class, @modules) = @_;
    for my $module (@modules ? @modules : sort keys %packages) {
        my $replaced = $packages{$module}
            or Carp::croak("$class: nothing stands for $module, but for: @{[sort keys %packages]}");
        replace($_, $replaced->{$_}) for sort keys %$replaced;
    }
    return;
}

# A stub calls it, which lies where a program looks for the original.
sub stand_in {
    my ($class, $module) = @_;
    delete $INC{ file($module) };
    return $class->import($module);
}

# The folder of the stubs.
sub folder { return __FILE__ =~ s/\.pm\z//r }

sub file { return $_[0] =~ s{::}{/}gr . '.pm' }

# The package `theirs` is a subclass of ours, so that its objects are of the class that the program
# names, and has its functions and exports.
sub replace {
    my ($theirs, $ours) = @_;
    return if ($original{$ours} // '') eq $theirs;
    Carp::croak("$theirs is loaded already") if $INC{ file($theirs) };
    require(file($ours));
    no strict 'refs';
    for my $name (keys %{"${ours}::"}) {
        next if $name =~ /::\z|\A(?:BEGIN|VERSION)\z/ || !defined &{"${ours}::$name"};
        *{"${theirs}::$name"} = \&{"${ours}::$name"};
    }
    *{"${theirs}::$_"} = \@{"${ours}::$_"} for qw(EXPORT EXPORT_OK);
    *{"${theirs}::EXPORT_TAGS"} = \%{"${ours}::EXPORT_TAGS"};
    @{"${theirs}::ISA"} = $ours;
    my ($distribution) = $theirs =~ /\A(Atomic::Pipe|Data::ReqRep::Shared|IO::FD)/;
    ${"${theirs}::VERSION"} = $versions{$distribution};
    *{"${theirs}::VERSION"} = \&UNIVERSAL::VERSION;
    $original{$ours} = $theirs;
    $INC{ file($theirs) } = $INC{ file($ours) };
    return;
}

1;
__END__

=head1 NAME

Pipework::InsteadOf - runs programs of Atomic::Pipe, Data::ReqRep::Shared and IO::FD as they are

=head1 SYNOPSIS

    use Pipework::InsteadOf qw(Atomic::Pipe);
    use Atomic::Pipe 0.026;    # which is Pipework::Atomic now

    my ($r, $w) = Atomic::Pipe->pair;
    $w->write_message('hello');
    print ref $r, ': ', $r->read_message, "\n";    # Atomic::Pipe: hello

=head1 DESCRIPTION

A program that was written for one of the originals runs without a change:

    perl -MPipework::InsteadOf=Atomic::Pipe program.pl
    perl -MPipework::InsteadOf program.pl               # all of them

In each Perl that a program starts:

    export PERL5LIB="$(perl -mPipework::InsteadOf -e 'print Pipework::InsteadOf->folder'):$PERL5LIB"
    make test

That folder has a file in the place of each original, F<Atomic/Pipe.pm> for instance, which loads this.
C<PERL5OPT=-MPipework::InsteadOf> does nearly as much, but Perl reads it after its command line. So it comes too
late for a Perl that is started with C<-MAtomic::Pipe>, or with a module that loads Atomic::Pipe.

It is for trying Pipework, and for programs that cannot be changed. It must come before the original
is loaded, and dies otherwise.

    the original                            here
    Atomic::Pipe                            Pipework::Atomic
    Data::ReqRep::Shared                    Pipework::ReqRep
      ::Client  ::Int  ::Int::Client          ::Client  ::Int  ::Int::Client
    IO::FD                                  Pipework::FD
      ::DWIM  ::Constants                     ::DWIM  ::Constants

To name one module of an original is to name all of it.

Objects are of the class that the program names, which is a subclass of ours: C<ref> says
C<Atomic::Pipe>. Messages that name a class or a function name the original's. C<VERSION> is that of
the original whose interface this is, so C<use Atomic::Pipe 0.026> works, and a version that is too
new dies. Lines that begin with C<Usage:> name the function here. The constants of
Atomic::Pipe's keys, such as C<Atomic::Pipe::STATE>, are there. The variables of the originals'
packages are not there, but for C<$VERSION> and those of L<Exporter>.

=cut
