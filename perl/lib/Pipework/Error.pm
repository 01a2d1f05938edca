package Pipework::Error;
use 5.026;
use strict;
use warnings;
use Scalar::Util qw(blessed);
use overload
    '""'     => sub { "$_[0]{text} at $_[0]{file} line $_[0]{line}.\n" },
    bool     => sub { 1 },
    fallback => 1;

our $VERSION = '0.1.0';

# The kinds by name, as in the header of the C library.
my @names = qw(
    Ok WouldBlock TimedOut Interrupted Closed TooLong Stale PeerDied NoServer Torn Corrupt
    Incompatible Unsupported Invalid Os Failed Lagged
);

sub kind   { $names[$_[0]{kind}] // 'Bug' }
sub op     { $_[0]{op} }
sub errno  { $_[0]{errno} }
sub done   { $_[0]{done} }
sub text   { $_[0]{text} }
sub file   { $_[0]{file} }
sub line   { $_[0]{line} }
sub torn   { $_[0]{torn} }
sub reason { $_[0]{reason} }

sub caught {
    my ($class, $kind) = @_;
    return undef if !blessed $@ || !$@->isa($class);
    return !defined $kind || $@->kind eq $kind ? $@ : undef;
}

1;
__END__

=head1 NAME

Pipework::Error - what Pipework dies with where the originals have nothing like it

=head1 SYNOPSIS

    use Pipework::ReqRep;

    my $srv = Pipework::ReqRep->create;
    my $cli = Pipework::ReqRep::Client->open(fd => $srv->memfd);
    eval { $cli->call('anybody there?', timeout => 0.1) };
    if (my $error = Pipework::Error->caught('TimedOut')) {
        print $error->text, "\n";    # in words
    } elsif ($@) {
        die $@;
    }

=head1 DESCRIPTION

Methods of the originals return undef where the original does, and die with the original's words.
Methods that the originals do not have die with one of these. As a string it is like those that
C<die> makes, with the file and the line of the call and a newline.

=over

=item Pipework::Error->caught($kind)

The exception in C<$@> if it is one of these, and of that kind where a kind is given; else undef.

=item kind

One of these names:

    WouldBlock    the operation would block
    TimedOut      the time has passed
    Interrupted   a signal handler ran
    Closed        the other side is gone
    TooLong       larger than a limit
    Stale         a ticket or handle that is no longer valid
    PeerDied      the process that had the request has died
    NoServer      no server is attached
    Torn          a part of the message never came
    Corrupt       bytes that no correct peer writes
    Incompatible  made by a build that this one cannot work with
    Unsupported   this kernel or this kind of descriptor cannot do it
    Invalid       invalid arguments
    Os            any other error of the kernel
    Failed        the other side gave up
    Lagged        messages are gone that a subscriber had not received
    Bug           a mistake of Pipework

=item text

All of it in words, without file, line and newline.

=item file, line

The file and the line of the call.

=item op

The operation that failed, for instance C<reqrep call>.

=item errno

The number that C<$!> was set to.

=item done

How far the call had got, in bytes or items.

=item reason

Why the other side gave up, if it gave a reason; else undef.

=item torn

The report of the lost message, if the call failed because of it; else undef.

=back

=cut
