package Pipework::Atomic;
use 5.026;
use strict;
use warnings;
use Carp ();
use Errno ();
use Fcntl ();
use Pipework ();
use overload ();
use Scalar::Util ();

our $VERSION = $Pipework::VERSION;
Pipework::accept_versions(__PACKAGE__, '0.027');

# PIPE_BUF is a constant, too; the compiled half has it, and the defaults.
use constant {
    HAVE_IO_SELECT => 1,
    IS_WIN32 => 0,
};

# The keys that the original's hash has, in upper case. Programs look into the hash by them, for messages of
# processes that have died, for instance, which are not kept there: `state` has nothing.
use constant {
    map { uc $_ => $_ }
        qw(
        adjusted_dsize burst_postfix burst_prefix compression compression_dictionary
        compression_dictionary_file compression_level delimiter_size eof hit_epipe in_buffer
        in_buffer_size invalid_state keep_compressed message_key mixed_buffer out_buffer
        read_blocking read_size rh state use_io_select wh write_blocking
        )
};

# ------------------------------------------------------------------------------ constructors

sub pair {
    my ($class, %options) = @_;
    my $errno = $!;
    pipe(my $rh, my $wh) or Carp::croak("Could not create a pipe: $!");
    return (_made($errno, $class, \%options, rh => $rh),
        _made($errno, $class, \%options, wh => $wh));
}

sub new {
    my ($class, %options) = @_;
    my $errno = $!;
    pipe(my $rh, my $wh) or Carp::croak("Could not create a pipe: $!");
    return _made($errno, $class, \%options, rh => $rh, wh => $wh);
}

sub read_fifo {
    my ($class, $path, %options) = @_;
    my $errno = $!;
    _check_fifo($path);
    open(my $rh, '+<', $path) or Carp::croak("Could not open fifo ($path) for reading: $!");
    return _made($errno, $class, \%options, rh => $rh);
}

sub write_fifo {
    my ($class, $path, %options) = @_;
    my $errno = $!;
    _check_fifo($path);
    my $fd = _open_fifo($path);
    Carp::croak("Could not open fifo ($path) for writing: $!") if $fd < 0;
    return _made($errno, $class, \%options, wh => _handle('>&=', $fd));
}

sub listen_fifo {
    my ($class, $path, %options) = @_;
    return _made_on_path($!, $class, \%options, \&_listen_fifo, $path);
}

sub read_fifo_to_end {
    my ($class, $path, %options) = @_;
    return _made_on_path($!, $class, \%options, \&_read_fifo, $path);
}

sub from_fh {
    my $class = shift;
    my $errno = $!;
    my $mode = @_ % 2 ? undef : shift;
    my ($fh, %options) = @_;
    no warnings 'unopened';
    defined $fh && -p $fh or Carp::croak('Filehandle is not a pipe (-p check)');
    $mode //= _mode_of($fh);
    my ($end) = _end_of($mode);
    my $own = _handle($mode, $fh) // Carp::croak("Could not clone ($mode) filehandle: $!");
    return _made($errno, $class, \%options, $end => $own);
}

sub from_fd {
    my ($class, $mode, $fd, %options) = @_;
    my $errno = $!;
    my ($end) = _end_of($mode);
    # A number that is refused is not closed, so it is looked at in a duplicate.
    my $own;
    if (defined $fd && $fd =~ /\A[0-9]+\z/ && $fd < 2**31) {
        $own = _handle($mode =~ tr/=//dr, $fd);
    } else {
        $! = Errno::EBADF();
    }
    Carp::croak("Could not open ($mode) fd" . ($fd // 'undef') . ": $!") if !$own;
    -p $own or Carp::croak('Filehandle is not a pipe (-p check)');
    $own = _handle($mode, $fd) if $mode =~ /=/;
    return _made($errno, $class, \%options, $end => $own);
}

# ------------------------------------------------------------------------------ settings of reading

sub read_size {
    my ($self, $bytes) = @_;
    _check($self);
    _set_read_size($self, $self->{read_size} = $bytes) if $bytes;
    return $self->{read_size} || _DEFAULT_READ_SIZE();
}

sub set_exact {
    my ($self, $count) = @_;
    _check($self);
    _set_exact($self, $count);
    return;
}

sub use_io_select {
    my $self = shift;
    _check($self);
    $self->{use_io_select} = $_[0] ? 1 : 0 if @_;
    return $self->{use_io_select} // 1 ? 1 : 0;
}

# ------------------------------------------------------------------------------ one end of two

sub reader {
    my $self = shift;
    _check($self);
    Carp::croak('pipe was set to writer, cannot set to reader') if !$self->{rh};
    _close_writer($self);
    return 1;
}

sub writer {
    my $self = shift;
    _check($self);
    Carp::croak('pipe was set to reader, cannot set to writer') if !$self->{wh};
    _close_reader($self);
    return 1;
}

sub clone_reader {
    my $self = shift;
    _check($self);
    my $errno = $!;
    my $clone = _half($self, $self->{rh} // Carp::croak('Not a read handle'));
    _begin($clone);
    _own_handle($clone, _read_with($clone, $self));
    return _like($errno, $clone, $self);
}

sub clone_writer {
    my $self = shift;
    _check($self);
    my $errno = $!;
    my $clone = _half($self, $self->{wh} // Carp::croak('Cannot call write on a pipe reader'));
    $clone->{wh} = _handle('>&', $self->{wh}) // Carp::croak("Could not clone the handle: $!");
    _begin($clone);
    _write_to($clone, fileno $clone->{wh}, _limits($clone));
    _compress($clone);
    return _like($errno, $clone, $self);
}

sub close {
    my $self = shift;
    _check($self);
    my @handles = grep { defined } @$self{qw(rh wh)};
    my $why = _close_writer($self) ? undef : _unwritten();
    my $errno = $!;
    _close_reader($self);
    CORE::close($_) for @handles;
    return if !defined $why;
    $! = $errno;
    return Carp::croak($why);
}

sub DESTROY {
    my $self = shift;
    return if !_is_whole($self);
    local ($., $@, $!, $^E, $?);
    # A signal handler may die in it, and so may a warning's.
    my $is_written = eval { _finish($self) };
    my $why = $@ || _unwritten() . "\n";
    eval { warn "Pipework::Atomic: pending messages are lost: $why" } if !$is_written;
    _destroy($self);
    delete @$self{qw(rh wh in_buffer_size)};
    return;
}

# ------------------------------------------------------------------------------ compression

sub keep_compressed { _check($_[0]); $_[0]{keep_compressed} ? 1 : 0 }

sub set_compression {
    my ($self, $algorithm, $level) = @_;
    _check($self);
    _check_algorithm($algorithm) if defined $algorithm;
    $level //= $self->{compression_level} if defined $algorithm;
    return _change($self, compression => $algorithm, compression_level => $level);
}

sub set_compression_dictionary {
    my ($self, $bytes) = @_;
    _check($self);
    return _change($self, compression_dictionary => $bytes, compression_dictionary_file => undef);
}

sub set_compression_dictionary_file {
    my ($self, $path) = @_;
    _check($self);
    return _change($self, compression_dictionary => undef, compression_dictionary_file => $path);
}

sub set_keep_compressed {
    my ($self, $keep) = @_;
    $keep = $keep ? 1 : 0;
    _set_keep_compressed($self, $keep);
    $self->{keep_compressed} = $keep;
    return;
}

# Dies at the caller's line, unless it is an object.
sub _check {
    return if _is_whole($_[0]);
    eval { _must_be_whole($_[0]) };
    return Carp::croak($@ =~ s/ at .*? line \d+\.\n\z//sr);
}

# ------------------------------------------------------------------------------ how they are made

# An object with these handles, and the ends behind it. $! stays as it was before: handles of Perl's
# change it even if nothing fails.
sub _made {
    my ($errno, $class, $options, %handles) = @_;
    _check_options($options);
    my $self = _blessed($class, $options, %handles);
    _begin($self);
    # Text from Perl's own layers would be another one.
    binmode($_) for values %handles;
    _read_from($self, fileno $handles{rh}, _limits($self)) if $handles{rh};
    _write_to($self, fileno $handles{wh}, _limits($self)) if $handles{wh};
    return _set_up($errno, $self);
}

# A reader whose descriptor is the library's own, which opens it once more from time to time.
sub _made_on_path {
    my ($errno, $class, $options, $open, $path) = @_;
    _check_options($options);
    my $self = _blessed($class, $options);
    _begin($self);
    _own_handle($self, $open->($self, $path, _limits($self)));
    return _set_up($errno, $self);
}

sub _blessed {
    my ($class, $options, %handles) = @_;
    return bless {%$options, %handles}, Scalar::Util::blessed($class) // $class;
}

# The handle of a reader that reads by another number.
sub _own_handle {
    my ($self, $fd) = @_;
    $self->{rh} = _handle('<&', $fd) // Carp::croak("Could not clone the handle: $!");
    _lend($self, fileno $self->{rh});
    return;
}

sub _set_up {
    my ($errno, $self) = @_;
    _compress($self);
    _set_keep_compressed($self, 1) if $self->{keep_compressed};
    _show_buffer($self);
    $! = $errno;
    return $self;
}

sub _show_buffer {
    my $self = shift;
    tie $self->{in_buffer_size}, 'Pipework::Atomic::InBufferSize', $self if $self->{rh};
    return;
}

# The options that the compiled half takes, in its order.
sub _limits { @{$_[0]}{qw(mixed_data_mode strict max_message max_unfinished read_size spin)} }

# A copy of the object without its handles.
sub _half {
    my $self = shift;
    my %copy = map { $_ => $self->{$_} } grep { !/\A(?:rh|wh|in_buffer_size)\z/ } keys %$self;
    return bless \%copy, ref $self;
}

# A clone waits as its original does.
sub _like {
    my ($errno, $clone, $self) = @_;
    $clone->blocking($clone->{rh} ? $self->read_blocking : $self->write_blocking);
    _show_buffer($clone);
    $! = $errno;
    return $clone;
}

# A handle on the same open file (">&"), or on the same number (">&="), whose close-on-exec stays.
sub _handle {
    my ($mode, $from) = @_;
    my $fd = ref $from || ref \$from eq 'GLOB' ? fileno $from : $from;
    my $flags = $mode =~ /=/ && defined $fd ? _fd_flags($fd) : -1;
    open(my $own, $mode, $from) or return undef;
    _set_fd_flags($fd, $flags) if $flags >= 0;
    return $own;
}

sub _mode_of {
    my $fh = shift;
    my $access = (fcntl($fh, Fcntl::F_GETFL(), 0) // -1) & (Fcntl::O_WRONLY() | Fcntl::O_RDWR());
    return '<&' if $access == Fcntl::O_RDONLY();
    return '>&' if $access == Fcntl::O_WRONLY();
    return Carp::croak("Could not determine filehandle mode, please specify '>&' or '<&'");
}

sub _end_of {
    my $mode = shift // '';
    return $mode =~ /\A([<>])&=?\z/ ? $1 eq '<' ? 'rh' : 'wh' : Carp::croak("Invalid mode: $mode");
}

sub _check_fifo {
    my $path = shift;
    $path = '' if !defined $path;
    Carp::croak('the path of a fifo has a NUL in it') if $path =~ /\0/;
    -p $path or Carp::croak("File '$path' is not a pipe (-p check)");
    return;
}

# ------------------------------------------------------------------------------ how they end

# Writes pending messages first. False if the pipe has no reader; the end is closed in any case.
sub _close_writer {
    my $self = shift;
    return 1 if !$self->{wh};
    my $is_written = _finish($self);
    _drop($self, 1);
    delete $self->{wh};
    return $is_written;
}

# The reason why pending messages could not be written.
sub _unwritten { $! == Errno::EBADF() ? "Disconnected pipe: $!" : 'Disconnected pipe' }

sub _close_reader {
    my $self = shift;
    return if !$self->{rh};
    _drop($self, 0);
    delete $self->{rh};
    return;
}

# ------------------------------------------------------------------------------ settings

sub _check_algorithm {
    my $algorithm = shift;
    return if $algorithm eq 'zstd';
    return Carp::croak("Unknown compression algorithm '$algorithm'");
}

sub _check_options {
    my ($options) = @_;
    _check_compression($options);
    for my $name (qw(max_message max_unfinished)) {
        my $bytes = $options->{$name} // next;
        Carp::croak("$name is a number of bytes from 1, and not '$bytes'")
            if !Scalar::Util::looks_like_number($bytes) || $bytes < 1;
    }
    my $code = $options->{on_torn} // return;
    Carp::croak('on_torn is a code reference')
        if (Scalar::Util::reftype($code) // '') ne 'CODE' && !overload::Method($code, '&{}');
    return;
}

sub _check_compression {
    my $options = shift;
    my @given =
        grep { defined $options->{$_} } qw(compression_dictionary compression_dictionary_file);
    Carp::croak('compression_dictionary and compression_dictionary_file are mutually exclusive')
        if @given == 2;
    return _check_algorithm($options->{compression}) if defined $options->{compression};
    # The original says so of the file, too.
    Carp::croak('compression_dictionary requires compression to be enabled') if @given;
    return;
}

sub _compress {
    my $self = shift;
    return _set_plain($self) if !defined $self->{compression};
    return _zstd_is_due($self) if defined $self->{compression_dictionary_file};
    return _compress_with($self, $self->{compression_dictionary});
}

sub _compress_with {
    my ($self, $dictionary) = @_;
    my $level = $self->{compression_level} // _DEFAULT_LEVEL();
    return _set_zstd($self, $level, $dictionary, $self->{accept_unchecked});
}

# Sets these, unless they are refused.
sub _change {
    my ($self, %new) = @_;
    my %old = map { $_ => $self->{$_} } keys %new;
    @$self{keys %new} = values %new;
    return if eval { _compress($self); 1 };
    @$self{keys %old} = values %old;
    die $@;
}

# Called before the first message.
sub _load_dictionary {
    my $self = shift;
    my $path = $self->{compression_dictionary_file};
    my $fh;
    my $bytes = open($fh, '<:raw', $path) ? do { local $/; readline $fh } : undef;
    Carp::croak("Could not read the compression dictionary '$path': $!") if !defined $bytes;
    return _compress_with($self, $bytes);
}

# ------------------------------------------------------------------------------ reports

# Called for a message that is lost.
sub _lost {
    my ($self, $report) = @_;
    return $self->{on_torn}->($report) if $self->{on_torn};
    # The warning comes by default: only `no warnings 'pipework'` turns it off.
    my $is_unsaid = !defined((caller 0)[9]);
    my $from = defined $report->{writer} ? " of writer $report->{writer}" : '';
    Carp::carp(
        "A message$from is lost ($report->{kind}): $report->{parts} parts and "
            . "$report->{bytes} bytes of it had come"
        )
        if $is_unsaid || warnings::enabled('pipework');
    return;
}

package    # in the same file, for it shows what the class above knows
    Pipework::Atomic::InBufferSize;

# $reader->{in_buffer_size}: how many bytes were read and not given out.
sub TIESCALAR {
    my ($class, $reader) = @_;
    Scalar::Util::weaken($reader);
    return bless \$reader, $class;
}

sub FETCH {
    my $reader = ${$_[0]};
    return Pipework::Atomic::_is_whole($reader) ? Pipework::Atomic::_buffered($reader) : 0;
}
sub STORE { }

1;

__END__

=encoding UTF-8

=head1 NAME

Pipework::Atomic - whole messages from many writers through one pipe

=head1 SYNOPSIS

    use Pipework::Atomic;

    my ($r, $w) = Pipework::Atomic->pair;
    my @children = map {
        my $pid = fork // die "fork: $!";
        if (!$pid) {
            $w->write_message("$_: " . 'x' x 100_000);    # however long: it arrives whole
            exit;
        }
        $pid;
    } 1 .. 3;
    $w->close;
    while (defined(my $message = $r->read_message)) {
        print length $message, " bytes\n";
    }
    waitpid $_, 0 for @children;

    # Text, bursts and messages through one pipe.
    ($r, $w) = Pipework::Atomic->pair(mixed_data_mode => 1);
    $w->wh->autoflush(1);
    print {$w->wh} "a line\n";
    $w->write_message('a message');
    $w->close;
    while (my ($type, $data) = $r->get_line_burst_or_data) {
        print "$type: $data\n";
    }

    # Compressed.
    ($r, $w) = Pipework::Atomic->pair(compression => 'zstd');
    $w->write_message('x' x 100_000);
    print length $r->read_message, " bytes\n";

=head1 DESCRIPTION

A pipe keeps a write of up to 4096 bytes in one piece, and tears anything larger. Here a message is
cut into parts of that size, each with the name of its writer, and the reader puts them together:
each message comes out whole, once, and in the order of its writer.

This is the interface of Atomic::Pipe 0.027. Either module may be at either end. F<COMPAT.md> in the
distribution says what is different, and why.

Bytes go in and bytes come out: text with characters over 255 dies with C<Wide character>; encode it
first. Undef counts as the empty text, with Perl's usual warning.

=head2 Waiting

A call that waits lets signal handlers run at once. A handler may die: that ends the call, and
nothing is lost, because bytes that were read stay there for the next call, and bytes that were not
yet written are pending. It may use, close or destroy the object, and may end the wait with C<<
$p->blocking(0) >>. One that returns does not end the wait.

C<blocking> is a flag of the object. The O_NONBLOCK of the open file, which other processes may
share, is never changed.

=head2 Event loops

A loop watches C<rh>, or C<wh> while C<pending_output> is true. With C<blocking(0)>, take all
messages each time, because bytes that have been read already do not make C<rh> readable again:

    $r->blocking(0);
    my $watcher = EV::io($r->rh, EV::READ, sub {
        while (defined(my $message = $r->read_message)) { ... }
        undef $watcher if $r->eof;
    });

=head2 Mixed data mode

The same pipe carries the text that a program prints and the messages that it sends: C<STDOUT> is
opened to C<< $w->wh >>, and C<write_message> goes in between. Three control bytes tell messages and
bursts from text: 0x0E, 0x0F and 0x10. A program may still print them: bytes that do not form a
whole message or burst are text. C<< strict => 1 >> makes an exception of it, as Atomic::Pipe does.

A reader in this mode does not wait: as long as its writers are alive, C<get_line_burst_or_data>
finds nothing now and then. C<< $r->blocking(1) >> makes it wait.

Perl buffers printed text. A program whose lines are to stay in order with its messages sets C<<
$fh->autoflush(1) >>.

=head2 Lost messages

When a writer is killed in the middle of a message, its message is lost and all others are whole.
The reader reports it when the pipe ends, or when something contradicts the message: it calls the
code reference C<on_torn>, if it was given, with a reference to a hash of C<writer> (as C<key>
returns it; missing if it is not known), C<kind> (C<Torn>, C<Corrupt> or C<TooLong>), C<parts> and
C<bytes>, the number of bytes that had come. Otherwise it warns, in the category C<pipework>.

In mixed data mode the end of such a pipe is an exception, which C<eof> and all later calls throw,
too: C<Pipe is in an invalid state 'Incomplete message received before EOF'>. All that is usable has
been given out before.

A message that cannot be decompressed dies with C<zstd decompression failed>, which names
C<accept_unchecked> where that may help, and one over C<max_message> with C<is longer than
max_message>. The next call goes on.

=head2 Handles that are closed elsewhere

The handles own the descriptors. When a program closes one itself, without C<close>, the end is
closed, too: reading and writing die, with C<Not a read handle: Bad file descriptor> or
C<Cannot call write on a pipe reader: Bad file descriptor>, and EBADF in C<$!>.

The number may belong to another file by then. Pending bytes are never written there: they are lost,
and the next call that writes, flushes or closes dies, the last two with C<Disconnected pipe: Bad
file descriptor>; C<DESTROY> warns. A reader looks at the file before its first read, before each
wait, and when the last call has found nothing. To look more often would cost a quarter of a short
message. So a message that fits into the pipe, and a read behind one that found something, still go
to the file that has the number: close with C<close>.

=head2 Processes and threads

A child that was forked writes as a writer of its own, without its parent's pending bytes. It may
read if the parent had nothing buffered; otherwise reading dies, with ESTALE in C<$!>. Only one
process can read from a pipe.

A new thread has objects of its own on the same pipe: its writers have a key of their own and
nothing pending, its readers share a buffer with the others, so each message goes to one of them.
The pipe ends when the writers of all threads are closed.

=head1 CONSTRUCTORS

All take these options; others stay in the object's hash, for subclasses.

=over

=item mixed_data_mode => $bool

Text may lie between messages. Both ends must agree.

=item compression => 'zstd', compression_level => $level

Messages and bursts are compressed. Both ends must agree. The level is from -131072 (fastest) to 22
(smallest), 3 by default.

=item compression_dictionary => $bytes, compression_dictionary_file => $path

Both ends must have the same. The file is read when it is first needed.

=item keep_compressed => $bool

Reading returns the compressed bytes, too.

=item read_size => $bytes

How much one read asks for: up to 16 MiB, 65536 by default.

=item use_io_select => $bool

Has no effect.

=item strict => $bool

Mixed data mode: control bytes that form no message or burst are an exception, and not text.

=item max_message => $bytes

The largest message that is read, and the longest line that comes in one piece: 256 MiB by default.

=item max_unfinished => $bytes

Of all unfinished messages together; past it the one that waited longest is lost. By default 8 times
C<max_message>, and at least 1 GiB.

=item spin => $seconds

For how long reading spins before it sleeps: up to a millisecond, 0.00002 by default.

=item accept_unchecked => $bool

Reads messages that were compressed with a dictionary and have no checksum, which may be from
another dictionary. Atomic::Pipe writes such.

=item on_torn => $code

Called for L</Lost messages>.

=back

They die with the words of the original, and with a L<Pipework::Error> for failures that it does not have.

=over

=item ($r, $w) = Pipework::Atomic->pair(%options)

A new pipe. C<$^F> decides whether its handles are close-on-exec.

=item $p = Pipework::Atomic->new(%options)

A new pipe with both ends in one object; see L</Both ends in one>.

=item $r = Pipework::Atomic->read_fifo($path, %options)

Opens a FIFO at once. It is open for writing, too, so it never ends.

=item $w = Pipework::Atomic->write_fifo($path, %options)

Waits until the FIFO has a reader.

=item $p = Pipework::Atomic->from_fh($fh, %options)

=item $p = Pipework::Atomic->from_fh($mode, $fh, %options)

=item $p = Pipework::Atomic->from_fd($mode, $fd, %options)

The end of a pipe that is open. The mode C<< '>&' >> or C<< '<&' >> makes a duplicate; C<< '>&=' >>
and C<< '<&=' >> keep the number, and whether it is close-on-exec.

=item $r = Pipework::Atomic->read_fifo_to_end($path, %options)

Opens a FIFO at once. It ends when its last writer has left; before the first has come, reading
waits for it. Follows no symbolic link.

=item $r = Pipework::Atomic->listen_fifo($path, %options)

The same, but it never ends: when the last writer has left, the reader reports what it did
not finish, and waits for the next one.

=back

=head1 WRITING

On an object that has no such end, all of these die with C<Cannot call write on a pipe reader>; when
the pipe has no reader any more, with C<Disconnected pipe>. They never cause a SIGPIPE. They wait if
the writer blocks. Otherwise the bytes that the pipe has no space for are pending, without limit,
and are written by the next call that writes, or when the writer is closed or destroyed, which
waits.

=over

=item $parts = $w->write_message($bytes)

Sends a message. Returns in how many parts, at least 1.

=item $count = $w->send_many(@messages)

Sends messages, several short ones in one write, and returns how many. None is sent if one of them
has characters over 255.

=item $bool = $w->write_burst($bytes)

Writes all in one piece: in mixed data mode between two control bytes, otherwise as it is, for a
reader of another kind. Returns 1; undef, and nothing is written, if it is too large. In mixed data
mode without compression, bytes that the reader could not tell from its own (0x0E or 0x0F anywhere,
0x10 at the front) die.

=item $size = $w->fits_in_burst($bytes)

How many bytes a burst takes in the pipe; undef if it is too large. It compresses where that is on.
Does not wait.

=item $bool = $w->pending_output

1 if anything is pending, else 0. Does not wait.

=item $w->flush, $w->flush(blocking => 1)

Writes pending messages; the second one waits even if the flag says otherwise. Does nothing on a reader.

=item $key = $w->key

The name of this writer in the pipe, C<"pid:tid">: the process, and a random number.

=back

=head1 READING

On an object that has no such end, all of these die with C<Not a read handle>.

=over

=item $message = $r->read_message

=item ($message, $compressed) = $r->read_message

=item $hash = $r->read_message(debug => 1)

The next message. Waits if the reader blocks. The empty list, undef in scalar context, if no message
is there now, or at the end. The second form is for C<keep_compressed>. The hash has C<message>,
C<pid>, C<tid>, C<parts> (the ids of the parts, as C<[2, 1, 0]>), and C<compressed> if it is kept.
Dies in mixed data mode.

=item ($type, $data) = $r->get_line_burst_or_data

=item ($type, $data) = $r->get_line_burst_or_data(peek_line => 1)

The next item of mixed data: C<line>, C<burst> or C<message>; with C<keep_compressed>, the last two
are followed by C<< compressed => $bytes >>. A line ends with C<\n>, except a last one without it.
The second form returns C<peek> and the text of a line that has begun, if no item is ready. The
empty list if nothing is there now, or at the end; in scalar context the last value. Does not wait,
unless C<blocking(1)> was called after the mode was set.

=item $message = $r->recv, $r->recv(timeout => $seconds)

The next message. Waits, even if the reader does not block, for ever or for C<$seconds>, which may
stand alone. Otherwise dies with a L<Pipework::Error>: C<TimedOut>, C<Closed> at the end, C<Torn>
and others for a lost message, whose report is C<< $@->torn >>.

=item $item = $r->next_item, $r->next_item(timeout => $seconds)

The next item of either mode, as a hash reference: C<type> (C<line>, C<burst>, C<message> or
C<torn>), C<data>; of a message C<writer> and C<parts>; C<compressed> where it is kept; a report is
as in L</Lost messages>. Waits and dies as C<recv>.

=item $bool = $r->eof

1 at the end of the pipe, when nothing usable is left, else 0. It reads, and gives nothing out. On a
reader that blocks, it waits until it is known.

=item $r->set_exact($count)

Makes reads stop at the end of the C<$count>-th item from here on, and then of each further one, so
that what lies behind it stays in the pipe for another reader. 0: they go ahead, as at first. Reports
of lost messages do not count. For each 64 KiB it costs two system calls and a copy.

=item $bytes = $r->fill_buffer

Reads once, and gives nothing out. Returns the number of bytes, 0 if none are there, or at the end.
Waits if the reader blocks. C<< $r->{in_buffer_size} >> is the number of bytes read and not given
out.

=item $report = $r->torn

The report of the last message that was lost; undef if none was lost.

=back

=head1 EITHER END

None of these waits, but for C<close> and C<set_mixed_data_mode> of a writer.

=over

=item $p->close

Writes what is pending, and closes the end, or both. May be repeated. Dies with C<Disconnected pipe>
if something was pending and the pipe has no reader; the end is closed all the same.

=item $bool = $p->blocking, $p->blocking($bool)

Whether calls wait. 1 at first, but 0 on a reader of mixed data. On an object with both ends: undef
if they differ. C<read_blocking> and C<write_blocking> are those of one end.

=item $p->set_mixed_data_mode

Sets mixed data mode, from here on. A writer first writes what is pending; a reader blocks no
longer.

=item $fh = $p->rh, $fh = $p->wh

The handles, or undef.

=item $bytes = $p->read_size, $p->read_size($bytes); $bool = $p->use_io_select

As the options.

=item $bytes = $p->size, $p->capacity

How much the pipe holds. C<size> is undef, with C<$!> set, if the kernel does not say; C<capacity>
dies then.

=item $bytes = $p->resize($bytes), $p->resize_or_max($bytes)

Sets it, the second one to C<max_size> at most. Returns what the kernel gave, at least as much;
undef, with C<$!> set, if it refused.

=item $bytes = Pipework::Atomic->max_size

The most that an unprivileged user may ask for.

=item Pipework::Atomic->PIPE_BUF

4096. A constant: also C<Pipework::Atomic::PIPE_BUF>. C<HAVE_IO_SELECT> is 1, C<IS_WIN32> 0,
C<IN_BUFFER_SIZE> C<'in_buffer_size'>.

=item compression, compression_level, compression_dictionary, compression_dictionary_file

The settings; undef where nothing was set. C<keep_compressed> is 1 or 0.

=item $p->set_compression('zstd', $level), $p->set_compression(undef)

Without a level the one before stays. undef clears it, too, but not the dictionaries.

=item $p->set_compression_dictionary($bytes), $p->set_compression_dictionary_file($path)

Setting one clears the other; undef clears it.

=item $p->set_keep_compressed($bool)

As the option.

=back

=head2 Both ends in one

=over

=item $bool = $p->is_reader, $p->is_writer

1 if it is that end only, else undef.

=item $r = $p->clone_reader, $w = $p->clone_writer

Another object for one end of the same pipe, with the same settings. Readers share one buffer: each
message goes to one of them. A writer has a key of its own, and pending bytes stay here.

=item $p->reader, $p->writer

Gives up the other end, once what is pending is written. Returns 1.

=back

=head1 SEE ALSO

L<Pipework::Error>, L<Pipework::FD>, L<Pipework::ReqRep>.

=cut
