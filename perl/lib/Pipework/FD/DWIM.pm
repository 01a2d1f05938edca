package Pipework::FD::DWIM;
use 5.026;
use strict;
use warnings;
use Exporter 'import';
use Pipework::FD;

our $VERSION = $Pipework::FD::VERSION;
Pipework::accept_versions(__PACKAGE__, 'v0.3.9');

our @EXPORT = qw(
    socket socketpair shutdown bind listen accept connect getsockopt setsockopt getpeername
    getsockname sysopen sysseek pipe close recv send sysread syswrite stat lstat fcntl ioctl
    readline fileno
);
our @EXPORT_OK   = @EXPORT;
our %EXPORT_TAGS = (all => \@EXPORT);

# A handle is a reference, or a glob such as *STDIN. Anything else is a descriptor, or will be one.
sub is_handle { ref $_[0] || ref \$_[0] eq 'GLOB' }

# Arguments are passed on where they lie in @_, so that those of the caller are assigned to.
my %prototypes = (
    socket => '$$$$', socketpair => '$$$$$', shutdown => '$$', bind => '$$', listen => '$$',
    connect => '$$', getsockopt => '$$$', setsockopt => '$$$$', getpeername => '$',
    getsockname => '$', sysseek => '$$$', pipe => '$$', close => '$', recv => '$$$$', stat => '$',
    fcntl => '$$$', ioctl => '$$$', readline => '$',
);
for my $name (keys %prototypes) {
    my $arguments = join ', ', map { "\$_[$_]" } 0 .. length($prototypes{$name}) - 1;
    eval "sub $name :prototype($prototypes{$name}) {
        return is_handle(\$_[0]) ? CORE::$name($arguments) : &Pipework::FD::$name;
    }
    1" or die $@;
}

# The new one is of the kind of the listener.
sub accept :prototype($$) {
    return &Pipework::FD::accept if !is_handle($_[1]);
    return CORE::accept($_[0], $_[1]);
}

sub sysopen :prototype($$$@) {
    return &Pipework::FD::sysopen if !is_handle($_[0]);
    return @_ > 3 ? CORE::sysopen($_[0], $_[1], $_[2], $_[3]) : CORE::sysopen($_[0], $_[1], $_[2]);
}

sub send :prototype($$$@) {
    return &Pipework::FD::send if !is_handle($_[0]);
    return @_ > 3 ? CORE::send($_[0], $_[1], $_[2], $_[3]) : CORE::send($_[0], $_[1], $_[2]);
}

# The prototype makes a reference of the buffer.
sub sysread :prototype($\$$@) {
    my (undef, $buffer, $len, $offset) = @_;
    return Pipework::FD::sysread($_[0], $$buffer, $len, $offset) if !is_handle($_[0]);
    return CORE::sysread($_[0], $$buffer, $len, $offset // 0);
}

sub syswrite :prototype($$@) {
    return &Pipework::FD::syswrite if !is_handle($_[0]);
    return CORE::syswrite($_[0], $_[1]) if @_ < 3;
    return CORE::syswrite($_[0], $_[1], $_[2], $_[3] // 0);
}

sub lstat :prototype($) {
    return &Pipework::FD::lstat if !is_handle($_[0]);
    no warnings 'io';    # it is none to Perl either
    return CORE::lstat($_[0]);
}

sub fileno :prototype($) { return &Pipework::FD::fileno }

1;
__END__

=head1 NAME

Pipework::FD::DWIM - the functions of Perl, for handles and descriptors alike

=head1 SYNOPSIS

    use Pipework::FD::DWIM;
    use Socket;

    defined socketpair(my $one, my $other, AF_UNIX, SOCK_STREAM, 0) or die $!;
    syswrite $one, 'hello';
    sysread $other, my $bytes, 100;
    print "$bytes\n";
    syswrite \*STDOUT, "and a handle is one still\n";
    close $_ for $one, $other;

=head1 DESCRIPTION

These functions replace the built-in ones in the package that uses the module. If the first argument
is a reference or a glob, they are the built-in ones; otherwise they are those of L<Pipework::FD>,
with the same return values: test with C<defined>. A function that makes a socket, a file or a pipe
in an empty variable makes a descriptor. C<accept> makes a descriptor or a handle, as the listener
is.

All are exported, also by C<:all>: socket socketpair shutdown bind listen accept connect getsockopt
setsockopt getpeername getsockname sysopen sysseek pipe close recv send sysread syswrite stat lstat
fcntl ioctl readline fileno.

Syntax of Perl that is no function knows nothing of descriptors: C<-e $fd>, C<stat _> and
C<print $fd> want handles. With C<readline>, C<< <$fd> >> is replaced as well, also for handles, and
Perl then assigns nothing to C<$_> by itself:

    while (defined(my $line = <$handle>)) { ... }    # and not: while (<$handle>)

=cut
