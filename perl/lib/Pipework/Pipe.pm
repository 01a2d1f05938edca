package Pipework::Pipe;
use 5.026;
use strict;
use warnings;
use Carp  ();
use Errno ();
use IO::Handle ();
use Pipework;
use Symbol ();

our $VERSION = $Pipework::VERSION;
our @ISA     = 'IO::Handle';

# How many bytes the last failed call had moved.
our $done = 0;

sub pair {
    my ($class, @named) = @_;
    my @ends = map { bless Symbol::gensym(), ref $class || $class } 1, 2;
    tie *$_, $_ for @ends;
    # It returns the two, and dies where the caller is.
    @_ = (@ends, @named);
    goto &_pair;
}

# For `tie`: the handle is its own object.
sub TIEHANDLE { return $_[0] }

sub PRINT {
    my $self = shift;
    my $text = join $, // '', @_;
    $text .= $\ if defined $\;
    return defined $self->send($text);
}

sub PRINTF {
    my ($self, $format, @values) = @_;
    return defined $self->send(sprintf $format, @values);
}

sub WRITE {
    my ($self, $bytes, $len, $offset) = @_;
    if (!defined $bytes) {
        # Perl has warned where it has asked for the length.
        warnings::warnif('uninitialized', 'Use of uninitialized value in syswrite') if $len;
        $bytes = '';
    }
    $bytes = "$bytes" if ref $bytes;
    $len    //= length $bytes;
    $offset //= 0;
    Carp::croak('Negative length') if $len < 0;
    Carp::croak('Offset outside string') if $offset < -length $bytes || $offset > length $bytes;
    return $self->send($bytes) if $offset == 0 && $len >= length $bytes;
    return $self->send(substr $bytes, $offset, $len);
}

# Those of IO::Handle ask the functions of Perl, which ask these again.
sub getline  { return scalar $_[0]->READLINE }
sub getlines { return $_[0]->READLINE }

sub GETC {
    my ($self) = @_;
    my $byte = $self->recv(max => 1);
    return defined $byte && length $byte ? $byte : undef;
}
*getc = \&GETC;

# The only mode is bytes.
sub BINMODE {
    my (undef, $layer) = @_;
    return 1 if !defined $layer || $layer =~ /^:(?:raw|bytes|unix)?$/;
    $! = Errno::EINVAL();
    return;
}

# Nothing is kept back.
sub flush { return '0 but true' }

# The handle has no descriptor, and no position.
sub FILENO { return undef }
sub SEEK   { $! = Errno::ESPIPE(); return '' }
sub TELL   { return -1 }

1;
__END__

=head1 NAME

Pipework::Pipe - a byte pipe between two threads, without descriptors

=head1 SYNOPSIS

    use Pipework::Pipe;

    my ($reader, $writer) = Pipework::Pipe->pair;
    print {$writer} "line $_\n" for 1 .. 1000;
    close $writer or die $!;

    my $count = 0;
    while (my $line = <$reader>) { $count++ }
    print "$count lines\n";

=head1 DESCRIPTION

One end writes a stream, and the other reads it. Neither holds all of it. It needs no descriptor,
and no system call while neither end has to wait.

Both ends are handles and L<IO::Handle> objects. The writing end has C<print>, C<printf>, C<say>,
C<syswrite>, the reading end C<< <$reader> >>, C<read>, C<sysread>, C<getc>, C<eof>, and both have
C<close>. Only C<fileno> is undef: functions that need a descriptor cannot use them.

Strings are bytes; characters over 255 die C<Wide character in send>.

=head2 Threads and processes

A thread that is started has a copy of each end that it can see: the same end, which is closed when
its last copy is closed or gone. So a thread closes the end that it does not use, as a process does
with a pipe after C<fork>. Copies of a thread that was not joined yet are there still.

    my ($reader, $writer) = Pipework::Pipe->pair;
    my $thread = threads->create(sub {
        copy_from_somewhere($writer);
        close $writer or die $!;
    });
    close $writer;
    while (my $line = <$reader>) { ... }
    $thread->join;

One thread at a time may use an end. Another that tries dies C<Another thread is using this end of
the pipe>. A forked child has a copy of the memory, and no other end.

=head2 Waits

Calls wait as long as it takes, or, if they take C<timeout>, for that many seconds; fractions count,
0 tries once, undef is for ever. Signal handlers run meanwhile, and may die, close the end or use
it; bytes read for a line that is not whole stay there for the next call.

=head2 Failures

A call that fails returns C<undef>, or false if it returns yes or no, and sets C<$!>: EPIPE if the
reader has gone, ECANCELED if the other end has given up, ETIMEDOUT, EBADF if this end is closed.
C<Pipework::error()> says it in words. C<$Pipework::Pipe::done> is how many bytes had been moved.
SIGPIPE never comes. A call on the wrong end, or on a value that is no end, dies.

=head1 METHODS

=over

=item pair, pair(capacity => $bytes)

Returns the reader and the writer of a pipe that holds C<$bytes> bytes, 65536 by default. Dies
if it is not more than 0.

=item print, printf, say, syswrite, send($bytes), send($bytes, timeout => $seconds)

Put in everything, and wait for space; or fail. C<syswrite> and C<send> return how many bytes that
is. A failure may come in the middle, and C<$Pipework::Pipe::done> says where.

=item recv, recv(max => $bytes, timeout => $seconds)

Waits for a byte, and returns those that are there, C<max> at most. "" is the end.

=item sysread($buffer, $length, $offset)

The same for a buffer. Returns the number of bytes; 0 is the end. Perl does not tell the functions
C<read> and C<sysread> of such a handle apart, so both are this one.

=item read($buffer, $length, $offset)

As a method, waits for all of them. Fewer are the end.

=item getline, getlines, readline

A line, as C<$/> says; undef at the end. All kinds of C<$/> are known: a separator, a paragraph,
records, everything. C<$.> is not counted.

=item eof

Waits until it knows.

=item copy_to_fd($fd), copy_to_fd($fd, length => $bytes, timeout => $seconds)

=item copy_from_fd($fd), copy_from_fd($fd, length => $bytes, timeout => $seconds)

Copy C<length> bytes, or all, to or from a descriptor or a handle, whose own buffers are not
used. Return the number of bytes.

=item close

Returns true if all is well at the other end: for a writer, that the reader is there still, though
it may not have read everything; for a reader, that the writer has not given up. Where other threads
have copies it says nothing about that, and is true.

=item close_with_error($text)

Gives up, for all threads. Calls at the other end fail with ECANCELED, a reader's when it has read
all bytes before that, and C<error> returns the text.

=item error

Why the other end gave up; undef if it did not.

=item buffered, capacity, is_closed, opened

How many bytes can be read now, how many the pipe holds, whether the other end is closed, whether
this one is open.

=back

=cut
