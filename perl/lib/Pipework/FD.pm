package Pipework::FD;
use 5.026;
use strict;
use warnings;
use Carp ();
use Exporter ();
use Socket ();
use Pipework;

our $VERSION = $Pipework::VERSION;
Pipework::accept_versions(__PACKAGE__, 'v0.3.9');

# The progress of the last failed call of ours.
our $done = 0;

*import = \&Exporter::import;
our %EXPORT_TAGS = (
    # Those of IO::FD: a program that imports them all keeps its other built-in functions.
    all => [qw(
        accept accept_multiple listen socket bind connect
        sysopen sysopen4 close
        sysread sysread4 syswrite syswrite2 syswrite3 syswrite4
        mkfifo mkfifoat pipe socketpair sysseek dup dup2
        fcntl ioctl getsockopt setsockopt select poll
        mkstemp mktemp readline fileno
    )],
);
our @EXPORT_OK = (
    @{ $EXPORT_TAGS{all} },
    qw(
        accept4 sysbind shutdown sockatmark getpeername getsockname send recv sendfile
        open openat sysread3 pread pwrite stat lstat syspipe sysfcntl sysioctl
        clock_gettime_monotonic
        accept_many send_many sendfile_all copy_all splice_all read_full write_all slurp
        pread_full pwrite_all close_range
    ),
);

sub SOCK_NONBLOCK () { Socket::SOCK_NONBLOCK }
sub SOCK_CLOEXEC ()  { Socket::SOCK_CLOEXEC }

# A handle, or a glob, has a descriptor; a descriptor is one.
sub fileno :prototype($) {
    my $handle = ref $_[0] || ref \$_[0] eq 'GLOB';
    return $handle ? CORE::fileno($_[0]) : $_[0];
}

sub select { return CORE::select($_[0], $_[1], $_[2], $_[3]) }

# A program for several systems may name these, and calls them on the others only.
for my $name (qw(kqueue kevent pack_kevent sv_to_pointer pointer_to_sv)) {
    my $refuse = sub { Carp::croak("${name}: Linux has no kqueue; there is poll") };
    no strict 'refs';
    *$name = $refuse;
}

1;
__END__

=head1 NAME

Pipework::FD - sockets, files and pipes as plain numbers

=head1 SYNOPSIS

    use Pipework::FD;
    use Socket;

    # A server, and a client that connects to it.
    defined Pipework::FD::socket(my $listener, AF_INET, SOCK_STREAM, 0) or die $!;
    defined Pipework::FD::bind($listener, pack_sockaddr_in(0, INADDR_LOOPBACK)) or die $!;
    defined Pipework::FD::listen($listener, 100) or die $!;

    defined Pipework::FD::socket(my $client, AF_INET, SOCK_STREAM, 0) or die $!;
    defined Pipework::FD::connect($client, Pipework::FD::getsockname($listener)) or die $!;
    defined Pipework::FD::syswrite($client, 'hello') or die $!;

    # All that wait, without blocking.
    my $count = Pipework::FD::accept_multiple(my @new, my @peers, $listener) // die $!;
    for my $fd (@new) {
        defined Pipework::FD::sysread($fd, my $bytes, 100) or die $!;
        print "$bytes\n";
        Pipework::FD::close($fd);
    }

=head1 DESCRIPTION

The functions of Perl that work with handles, for descriptors, which are integers. A program that
was written for IO::FD runs with this module in its place.

Descriptors have no buffers, no layers and no destructors: close everything that you open. Opening,
accepting and closing them takes less time than handles do, and no memory.

=head2 What all functions have in common

B<Success is a defined value>, and may be 0 or the empty string. Failure is C<undef>, and C<$!> says
why:

    defined Pipework::FD::sysread($fd, my $buffer, 100) or die $!;

B<An argument that is no integer> in the place of a descriptor: C<undef>, EBADF, and the warning
C<Pipework::FD::NAME called with something other than a file descriptor>. A string or a float that
is an integer is one. It is looked at before any other argument.

B<An output that is read-only> dies C<Modification of a read-only value attempted>, before anything
is done. Other outputs are always set.

B<Descriptors that are made> are closed when another program is executed if they are greater than
C<$^F>, from their first moment. C<SOCK_CLOEXEC> and O_CLOEXEC ask for it in any case. Only in
C<accept4> the flags alone decide.

B<Strings are bytes.> Characters over 255 die C<Wide character in NAME>.

B<SIGPIPE> comes from C<syswrite>, C<send> and C<sendfile> if there is no reader, as from Perl's
own; never from the functions of L</ALL OF IT, AND MANY AT ONCE>.

B<A signal> ends a call that waits, with EINTR, as it ends those of Perl itself; only C<readline>
goes on. Handlers run before the next statement.

B<$!> is left alone by success, but for C<accept_multiple>.

=head1 FUNCTIONS

Nothing is exported unless it is asked for. C<:all> are the functions that IO::FD exports by that
name; they then replace the built-in ones in that package, which no longer take handles there
(those of L<Pipework::FD::DWIM> do). Not in C<:all>, but exported by name: C<send>, C<recv>,
C<shutdown>, C<getpeername>, C<getsockname>, C<stat>, C<lstat>, and all others.

=head2 Sockets

=over

=item socket $fd, $family, $type, $protocol

The descriptor; C<$fd> is set to it.

=item socketpair $one, $other, $family, $type, $protocol

1; both are set.

=item bind $fd, $address

=item sysbind $fd, $address

=item connect $fd, $address

=item listen $fd, $backlog

=item shutdown $fd, $how

1.

=item accept $new, $listener

The packed address of the peer. C<$new> is set.

=item accept4 $new, $listener, $flags

The same. The flags, C<Pipework::FD::SOCK_NONBLOCK> and C<Pipework::FD::SOCK_CLOEXEC>, decide what
the new one is.

=item accept_multiple @new, @peers, $listener

Accepts all connections that wait, and appends their descriptors and packed addresses to the two
arrays. The new ones do not block. Returns their number; C<undef> if none was accepted. C<$!> says
why there were not more, also after success: EAGAIN if no other connection waits, EMFILE if no
descriptor was left. It does not wait, even if the listener blocks.

=item getpeername $fd

=item getsockname $fd

The packed address.

=item getsockopt $fd, $level, $option

The packed value.

=item setsockopt $fd, $level, $option, $value

1. An integer, also one in a string of digits, is packed as a C C<int>; undef is 0. Any other string
is the value.

=item send $fd, $bytes, $flags, $to

How many bytes. The flags and the address may be left out.

=item recv $fd, $buffer, $length, $flags

The packed address of the sender, the empty string where the kernel does not say, as on a
connection. The buffer is set.

=item sockatmark $fd

1 if the next byte is the urgent one, else 0.

=item sendfile $socket, $source, $length, $offset

How many bytes of the file were moved, which may be fewer than C<$length>. The position of the file
stays.

=back

=head2 Files

=over

=item sysopen $fd, $path, $flags, $mode

=item sysopen4 $fd, $path, $flags, $mode

The descriptor; C<$fd> is set to it. The mode is 0666 unless it is given; sysopen4 wants it.

=item open $path, $flags, $mode

=item openat $folder, $path, $flags, $mode

The descriptor.

=item mkstemp $template

Makes a file that only its owner may open, under a new name: the X at the end of the template, six
at least, are replaced. In list context the descriptor and the path, in scalar context the
descriptor. C<$template> is changed, unless it is a constant. Dies if it fails.

=item mktemp $template

An unused name, made in the same way. Another process may take it meanwhile.

=item mkfifo $path, $mode

=item mkfifoat $folder, $path, $mode

1. The mode is 0666 unless it is given.

=item stat $target

=item lstat $target

The result of C<CORE::stat>: 13 values, the empty list if it fails; in scalar context 1 or C<undef>.
An integer is a descriptor, a string is a path.

=item sysseek $fd, $offset, $whence

The new position, which may be 0.

=back

=head2 Any descriptor

=over

=item sysread $fd, $buffer, $length, $offset

=item sysread3 $fd, $buffer, $length

=item sysread4 $fd, $buffer, $length, $offset

How many bytes; 0 at the end. They are put at C<$offset>, which counts from the end of the buffer if
it is negative, and the buffer ends behind them. Dies C<Negative length>, C<Offset outside string>.

=item syswrite $fd, $bytes, $length, $offset

=item syswrite2 $fd, $bytes

=item syswrite3 $fd, $bytes, $length

=item syswrite4 $fd, $bytes, $length, $offset

How many bytes. A length that is too large, or undef, is all of them. An undefined string is 0
bytes, with a warning.

=item pread $fd, $buffer, $length, $position

=item pwrite $fd, $bytes, $length, $position

The same, at a position of the file; its own stays.

=item pipe $reader, $writer

=item syspipe $reader, $writer

1; both are set.

=item dup $fd

The new descriptor.

=item dup2 $fd, $number

The number.

=item close $fd

1.

=item fcntl $fd, $command, $argument

=item sysfcntl $fd, $command, $argument

The kernel's result, which may be 0. A number is passed as it is, undef is 0, and a string is a
buffer that the kernel may write to, made 256 bytes long at least.

=item ioctl $fd, $request, $argument

=item sysioctl $fd, $request, $argument

The same, but that 0 is C<"0 but true">.

=item readline $fd

With C<$/> undefined all bytes until the end, with a reference to a number one record of that many
bytes, or in list context all of them. At the end C<undef>, or the empty list. Dies if C<$/> asks
for lines, which only handles can read.

=item fileno $handle

Its descriptor; of anything else, itself.

=back

=head2 Waiting and the rest

=over

=item poll $list, $seconds

Waits until one of the descriptors in the list is ready, a string that is packed with the constants
of L<Pipework::FD::Constants>, and changes it in place. How many are ready; 0 when the time has
passed. Fractions of a second count; undef or a negative number is for ever. Without a list it
sleeps. A signal handler ends it, with EINTR.

=item select $readable, $writable, $exceptional, $seconds

C<CORE::select>.

=item clock_gettime_monotonic

Seconds of a clock that is never set.

=item SV $size

An empty string with space for C<$size> bytes.

=item kqueue, kevent, pack_kevent, sv_to_pointer, pointer_to_sv

Die: Linux has no kqueue.

=back

=head1 ALL OF IT, AND MANY AT ONCE

IO::FD has none of these. They do the whole operation, whether the descriptor blocks or not, or
until C<$seconds> have passed; without them, or with undef, they wait for ever. Signal handlers run
in their waits, which go on. If one fails it returns C<undef>, C<$!> says why (ETIMEDOUT when the
time has passed), C<Pipework::error()> says it in words, and C<$Pipework::FD::done> how far it had
got.

=over

=item read_full $fd, $buffer, $length, $seconds

Reads until the buffer has C<$length> bytes, or the end. Returns their number. The buffer has the bytes
that were read even if it fails.

=item write_all $fd, $bytes, $seconds

Writes all of it. How many bytes that is.

=item slurp $fd, $max, $seconds

Everything up to the end of the file. EMSGSIZE if that is more than C<$max> bytes.

=item pread_full $fd, $buffer, $length, $position

=item pwrite_all $fd, $bytes, $position

At a position of the file; its own stays.

=item copy_all $from, $to, $length, $seconds

Copies C<$length> bytes, or without a length all, inside the kernel if it can. Returns their number.

=item splice_all $from, $to, $length, $seconds

The same through splice(2); one of them must be a pipe.

=item sendfile_all $socket, $source, $length, $offset, $seconds

The same from a position of a file; its own stays.

=item accept_many $listener, $max

A list of three: why there are not more (C<would block>, C<limit>, C<no descriptors>, or C<failed>
with C<$!>), a reference to the new descriptors, which do not block, and one to their peers. It
does not wait.

=item send_many $socket, \@datagrams, $seconds

Sends each as a datagram, in few system calls: bytes, or C<[$bytes, $address]>. How many.

=item close_range $first, $last, $on_exec

Closes all from C<$first> to C<$last>, or to the highest one if that is undef; if C<$on_exec>, when
another program is executed. Returns 1. An argument that is no descriptor closes nothing.

=back

When descriptors run out, clients that connect have to wait. A reserve turns them away:

    my $reserve = Pipework::FD::Reserve->new;          # holds one descriptor
    my $count = $reserve->shed($listener, 100);        # how many were accepted and closed
    $reserve->is_held or warn 'another thread took it';

An inbox receives datagrams by the batch:

    my $inbox = Pipework::FD::Inbox->new(64, 1500);    # how many at most, of how many bytes
    my $count = $inbox->recv($socket, $seconds);       # waits for one, takes all that are there
    my ($bytes, $sender, $is_cut) = $inbox->get(0);    # the empty list beyond the last

An object of either belongs to the thread that made it.

=head1 SEE ALSO

L<Pipework::FD::DWIM> has the same functions for descriptors and handles.

=cut
