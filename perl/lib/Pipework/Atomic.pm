package Pipework::Atomic;
use 5.026;
use strict;
use warnings;
use Carp ();
use Errno ();
use Fcntl ();
use Pipework ();
use Scalar::Util ();

our $VERSION = $Pipework::VERSION;
Pipework::accept_versions(__PACKAGE__, '0.027');

# PIPE_BUF is a constant, too; the compiled half has it.
use constant {
    HAVE_IO_SELECT => 1,
    IS_WIN32 => 0,
    IN_BUFFER_SIZE => 'in_buffer_size',
};

my $DEFAULT_LEVEL = 3;
my $DEFAULT_READ_SIZE = 65_536;

# ------------------------------------------------------------------------------ constructors

sub pair {
    my ($class, %options) = @_;
    pipe(my $rh, my $wh) or Carp::croak("Could not create a pipe: $!");
    return (_made($class, \%options, rh => $rh), _made($class, \%options, wh => $wh));
}

sub new {
    my ($class, %options) = @_;
    pipe(my $rh, my $wh) or Carp::croak("Could not create a pipe: $!");
    return _made($class, \%options, rh => $rh, wh => $wh);
}

sub read_fifo {
    my ($class, $path, %options) = @_;
    _check_fifo($path);
    open(my $rh, '+<', $path) or Carp::croak("Could not open fifo ($path) for reading: $!");
    return _made($class, \%options, rh => $rh);
}

sub write_fifo {
    my ($class, $path, %options) = @_;
    _check_fifo($path);
    my $fd = _open_fifo($path);
    Carp::croak("Could not open fifo ($path) for writing: $!") if $fd < 0;
    return _made($class, \%options, wh => _handle('>&=', $fd));
}

sub listen_fifo {
    my ($class, $path, %options) = @_;
    return _made_on_path($class, \%options, \&_listen_fifo, $path);
}

sub read_fifo_to_end {
    my ($class, $path, %options) = @_;
    return _made_on_path($class, \%options, \&_read_fifo, $path);
}

sub from_fh {
    my $class = shift;
    my $mode = @_ % 2 ? undef : shift;
    my ($fh, %options) = @_;
    no warnings 'unopened';
    defined $fh && -p $fh or Carp::croak('Filehandle is not a pipe (-p check)');
    $mode //= _mode_of($fh);
    my ($end) = _end_of($mode);
    my $own = _handle($mode, $fh) // Carp::croak("Could not clone ($mode) filehandle: $!");
    return _made($class, \%options, $end => $own);
}

sub from_fd {
    my ($class, $mode, $fd, %options) = @_;
    my ($end) = _end_of($mode);
    my $own;
    if (defined $fd && $fd =~ /\A[0-9]+\z/) { $own = _handle($mode, $fd) }
    else { $! = Errno::EBADF() }
    Carp::croak("Could not open ($mode) fd" . ($fd // 'undef') . ": $!") if !$own;
    -p $own or Carp::croak('Filehandle is not a pipe (-p check)');
    return _made($class, \%options, $end => $own);
}

# ------------------------------------------------------------------------------ settings of reading

sub read_size {
    my ($self, $bytes) = @_;
    _check($self);
    _set_read_size($self, $self->{read_size} = $bytes) if $bytes;
    return $self->{read_size} || $DEFAULT_READ_SIZE;
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
    my $clone = _half($self, $self->{rh} // Carp::croak('Not a read handle'));
    _begin($clone);
    _own_handle($clone, _read_with($clone, $self));
    return _like($clone, $self);
}

sub clone_writer {
    my $self = shift;
    _check($self);
    my $clone = _half($self, $self->{wh} // Carp::croak('Cannot call write on a pipe reader'));
    $clone->{wh} = _handle('>&', $self->{wh}) // Carp::croak("Could not clone the handle: $!");
    _begin($clone);
    _write_to($clone, fileno $clone->{wh}, _limits($clone));
    _compress($clone);
    return _like($clone, $self);
}

sub close {
    my $self = shift;
    _check($self);
    my @handles = grep { defined } @$self{qw(rh wh)};
    my $is_written = _close_writer($self);
    _close_reader($self);
    CORE::close($_) for @handles;
    Carp::croak('Disconnected pipe') if !$is_written;
    return;
}

sub DESTROY {
    my $self = shift;
    return if !_is_whole($self);
    local ($., $@, $!, $^E, $?);
    # A signal handler may die in it.
    my $is_written = eval { _finish($self) };
    warn 'Pipework::Atomic: what was pending is lost: ', $@ || "Disconnected pipe\n"
        if !$is_written;
    _destroy($self);
    delete @$self{qw(rh wh in_buffer_size)};
    return;
}

# ------------------------------------------------------------------------------ compression

sub keep_compressed { _check($_[0]); $_[0]{keep_compressed} ? 1 : 0 }

sub set_compression {
    my ($self, $algorithm, $level) = @_;
    _check($self);
    if (!defined $algorithm) { delete @$self{qw(compression compression_level)} }
    else {
        _check_algorithm($algorithm);
        $self->{compression} = $algorithm;
        $self->{compression_level} = $level if defined $level;
    }
    _compress($self);
    return;
}

sub set_compression_dictionary {
    my ($self, $bytes) = @_;
    _check($self);
    delete $self->{compression_dictionary_file};
    $self->{compression_dictionary} = $bytes;
    _compress($self);
    return;
}

sub set_compression_dictionary_file {
    my ($self, $path) = @_;
    _check($self);
    delete $self->{compression_dictionary};
    $self->{compression_dictionary_file} = $path;
    _compress($self);
    return;
}

sub set_keep_compressed {
    my ($self, $keep) = @_;
    $keep = $keep ? 1 : 0;
    _set_keep_compressed($self, $keep);
    $self->{keep_compressed} = $keep;
    return;
}

# ------------------------------------------------------------------------------ how they are made

# An object with these handles, and the ends behind it.
sub _made {
    my ($class, $options, %handles) = @_;
    _check_compression($options);
    my $self = _blessed($class, $options, %handles);
    _begin($self);
    # Text from Perl's own layers would be another one.
    binmode($_) for values %handles;
    _read_from($self, fileno $handles{rh}, _limits($self)) if $handles{rh};
    _write_to($self, fileno $handles{wh}, _limits($self)) if $handles{wh};
    return _set_up($self);
}

# A reader whose descriptor is the library's own, which opens it once more from time to time.
sub _made_on_path {
    my ($class, $options, $open, $path) = @_;
    _check_compression($options);
    my $self = _blessed($class, $options);
    _begin($self);
    _own_handle($self, $open->($self, $path, _limits($self)));
    return _set_up($self);
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
    my $self = shift;
    _compress($self);
    _set_keep_compressed($self, 1) if $self->{keep_compressed};
    _show_buffer($self);
    return $self;
}

sub _show_buffer {
    my $self = shift;
    tie $self->{in_buffer_size}, 'Pipework::Atomic::InBufferSize', $self if $self->{rh};
    return;
}

# What the compiled half asks for, in its order.
sub _limits { @{$_[0]}{qw(mixed_data_mode strict max_message max_unfinished read_size spin)} }

# A copy of the object without its handles.
sub _half {
    my $self = shift;
    my %copy = map { $_ => $self->{$_} } grep { !/\A(?:rh|wh|in_buffer_size)\z/ } keys %$self;
    return bless \%copy, ref $self;
}

# A clone waits as its original does.
sub _like {
    my ($clone, $self) = @_;
    $clone->blocking($clone->{rh} ? $self->read_blocking : $self->write_blocking);
    _show_buffer($clone);
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

# What is pending is written first. False if nobody reads it; then the end is closed all the same.
sub _close_writer {
    my $self = shift;
    return 1 if !$self->{wh};
    my $is_written = _finish($self);
    _drop($self, 1);
    delete $self->{wh};
    return $is_written;
}

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

sub _check_compression {
    my $options = shift;
    my @given =
        grep { defined $options->{$_} } qw(compression_dictionary compression_dictionary_file);
    Carp::croak('compression_dictionary and compression_dictionary_file are mutually exclusive')
        if @given == 2;
    return _check_algorithm($options->{compression}) if defined $options->{compression};
    Carp::croak("$given[0] requires compression to be enabled") if @given;
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
    my $level = $self->{compression_level} // $DEFAULT_LEVEL;
    return _set_zstd($self, $level, $dictionary, $self->{accept_unchecked});
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

# ------------------------------------------------------------------------------ what is told

# Called for a message that is lost.
sub _lost {
    my ($self, $report) = @_;
    return $self->{on_torn}->($report) if $self->{on_torn};
    # By default it is told: only `no warnings 'pipework'` says that nobody wants to know.
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
