package Pipework;
use 5.026;
use strict;
use warnings;
use Pipework::Error ();
use XSLoader        ();

# Warnings of lost messages, which `no warnings 'pipework'` turns off.
warnings::register_categories('pipework');

our $VERSION = '0.1.0';
XSLoader::load('Pipework', $VERSION);

# Programs for an original name its version: `use Pipework::Atomic 0.026`. Each module accepts the
# versions up to the one whose interface it keeps.
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
__END__

=head1 NAME

Pipework - whole messages, requests and bytes between the processes of one machine

=head1 SYNOPSIS

    use Pipework::ReqRep;

    my $srv = Pipework::ReqRep->create(slots => 8);
    my $pid = fork // die $!;
    if (!$pid) {
        while (my ($data, $id) = $srv->recv_wait(timeout => 1)) { $srv->reply($id, uc $data) }
        exit;
    }
    my $cli = Pipework::ReqRep::Client->open(fd => $srv->memfd);
    print $cli->call('hello', timeout => 5), "\n";
    waitpid $pid, 0;

=head1 DESCRIPTION

Load the modules that you need. Three of them also run programs that were written for another module
of CPAN.

=over 4

=item L<Pipework::Atomic>, for programs of Atomic::Pipe

Whole messages of any size through one pipe, also between printed text; between many processes and one reader.

=item L<Pipework::ReqRep>, for programs of Data::ReqRep::Shared

Calls and replies through shared memory, between many clients and many competing servers. Its other classes
are L<Pipework::ReqRep::Client>, C<::Stream>, C<::Int> and C<::Int::Client>. Large data goes in a
L<Pipework::ReqRep::Blob>, which is not copied.

=item L<Pipework::Pipe>

Bytes, without a system call while neither side waits, between two threads or tasks.

=item L<Pipework::FD>, for programs of IO::FD

Complete reads, writes and copies; one that fails says how far it got. L<Pipework::FD::DWIM> takes
handles as well as numbers, and L<Pipework::FD::Constants> has the constants for its C<poll>.

=back

Errors are a L<Pipework::Error>. L<Pipework::InsteadOf> runs programs of the originals unchanged.

A program that was written for one of the originals runs after its module names are changed; or
unchanged, with L<Pipework::InsteadOf>. F<COMPAT.md> says what differs, and why.

=head2 What the modules have in common

B<Failures>: a method of an original returns undef or the empty list where the original does, and
dies where the original dies, with the same words. Methods that the originals do not have die with a
L<Pipework::Error>, except for L<Pipework::FD> and L<Pipework::Pipe>, which return undef. C<$!> says
why, and C<Pipework::error()> says more. Success does not change C<$!>.

B<Named arguments>: methods of the originals take their arguments in the original's order. Options
that the originals do not have are named: C<< create(slots => 8) >>, C<< recv(max => 100) >>. An
unknown name dies with the list of the known ones. An option that is undef counts as not given,
unless it is a time. Functions of L<Pipework::FD> take all their arguments in order, as Perl's own.

B<Times> are seconds, and fractions count. 0 tries once; undef, a negative number, NaN and infinity
wait for ever. A time at the end of a call may be given alone, as the originals do, or by name:
C<< $cli->req_wait($data, 5) >>, C<< $cli->req_wait($data, timeout => 5) >>.

B<Numbers> are converted as Perl converts them: text that is no number gives a warning, and an
object with C<0+> is that number.

B<Memory>: data that was received and does not fit dies C<Out of memory for N bytes>, and is lost;
the process goes on.

B<Signal handlers> run while a call waits. They may die, close the object, or call its methods;
nothing is lost. A handler that returns does not end the wait. (System calls that Pipework::FD makes
for Perl end with EINTR, as Perl's own do.)

B<Strings> are bytes, and characters over 255 die C<Wide character in NAME>. Only requests and
responses of Pipework::ReqRep may be any string, which arrives as it was.

B<fork> and B<threads>: a child or a thread may use what it inherits, as each module says.

B<Versions>: C<use Pipework::Atomic 0.026> accepts the versions of the original up to the one whose
interface is kept. Pipework's own are v-strings: C<use Pipework v0.1.0>, for 0.1 would be v0.100.0.

=head1 FUNCTIONS

=over

=item Pipework::error()

The last failure in this interpreter, in words; as a number, its kind, in the order of
L<Pipework::Error/kind> from 1 on. The empty string before the first failure. Success does not reset
it, as with C<$!>.

=item Pipework::reason()

Why the other side gave up, if that was the last failure and it gave a reason; else undef.

=item Pipework::core_version()

The version of the library within.

=back

=head1 REQUIREMENTS

Linux, and Perl 5.26 or later with integers of 64 bits. No other module.

=cut
