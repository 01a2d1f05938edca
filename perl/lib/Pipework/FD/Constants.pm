package Pipework::FD::Constants;
use 5.026;
use strict;
use warnings;
use Exporter 'import';

our $VERSION = '0.1.0';

# With the numbers of Linux.
my %poll = (
    POLLIN     => 0x0001,
    POLLPRI    => 0x0002,
    POLLOUT    => 0x0004,
    POLLERR    => 0x0008,
    POLLHUP    => 0x0010,
    POLLNVAL   => 0x0020,
    POLLRDNORM => 0x0040,
    POLLRDBAND => 0x0080,
    POLLWRNORM => 0x0100,
    POLLWRBAND => 0x0200,
);

# Linux has none of these. A program for several systems compiles with them.
my %kqueue = (
    POLLEXTEND => 0x0200, POLLATTRIB => 0x0400, POLLNLINK => 0x0800, POLLWRITE => 0x1000,

    EVFILT_READ   => -1,  EVFILT_WRITE    => -2,  EVFILT_AIO          => -3, EVFILT_VNODE => -4,
    EVFILT_PROC   => -5,  EVFILT_SIGNAL   => -6,  EVFILT_TIMER        => -7,
    EVFILT_MACHPORT => -8, EVFILT_FS      => -9,  EVFILT_USER         => -10,
    EVFILT_VM     => -12, EVFILT_EXCEPT   => -15, EVFILT_SYSCOUNT     => 17,
    EVFILT_THREADMARKER => 17,

    KEVENT_FLAG_NONE => 0, KEVENT_FLAG_IMMEDIATE => 1, KEVENT_FLAG_ERROR_EVENTS => 2,

    EV_ADD      => 0x0001, EV_DELETE   => 0x0002, EV_ENABLE         => 0x0004,
    EV_DISABLE  => 0x0008, EV_ONESHOT  => 0x0010, EV_CLEAR          => 0x0020,
    EV_RECEIPT  => 0x0040, EV_DISPATCH => 0x0080, EV_UDATA_SPECIFIC => 0x0100,
    EV_DISPATCH2 => 0x0180, EV_VANISHED => 0x0200, EV_SYSFLAGS      => 0xf000,
    EV_FLAG0    => 0x1000, EV_POLL     => 0x1000, EV_FLAG1          => 0x2000,
    EV_OOBAND   => 0x2000, EV_ERROR    => 0x4000, EV_EOF            => 0x8000,

    NOTE_TRIGGER => 0x01000000, NOTE_FFNOP => 0, NOTE_FFAND => 0x40000000,
    NOTE_FFOR => 0x80000000, NOTE_FFCOPY => 0xc0000000, NOTE_FFCTRLMASK => 0xc0000000,
    NOTE_FFLAGSMASK => 0x00ffffff,

    NOTE_LOWAT => 0x01, NOTE_OOB => 0x02,

    NOTE_DELETE => 0x01, NOTE_WRITE => 0x02, NOTE_EXTEND => 0x04, NOTE_ATTRIB => 0x08,
    NOTE_LINK => 0x10, NOTE_RENAME => 0x20, NOTE_REVOKE => 0x40, NOTE_NONE => 0x80,
    NOTE_FUNLOCK => 0x100,

    NOTE_EXIT => 0x80000000, NOTE_FORK => 0x40000000, NOTE_EXEC => 0x20000000,
    NOTE_SIGNAL => 0x08000000, NOTE_EXITSTATUS => 0x04000000, NOTE_EXIT_DETAIL => 0x02000000,
    NOTE_PDATAMASK => 0x000fffff, NOTE_PCTRLMASK => ~0x000fffff,
    NOTE_EXIT_DETAIL_MASK => 0x00070000, NOTE_EXIT_DECRYPTFAIL => 0x00010000,
    NOTE_EXIT_MEMORY => 0x00020000, NOTE_EXIT_CSERROR => 0x00040000,

    NOTE_VM_PRESSURE => 0x80000000, NOTE_VM_PRESSURE_TERMINATE => 0x40000000,
    NOTE_VM_PRESSURE_SUDDEN_TERMINATE => 0x20000000, NOTE_VM_ERROR => 0x10000000,

    NOTE_SECONDS => 0x01, NOTE_USECONDS => 0x02, NOTE_NSECONDS => 0x04, NOTE_ABSOLUTE => 0x08,
    NOTE_LEEWAY => 0x10, NOTE_CRITICAL => 0x20, NOTE_BACKGROUND => 0x40,
    NOTE_MACH_CONTINUOUS_TIME => 0x80, NOTE_MACHTIME => 0x100,

    NOTE_TRACK => 0x01, NOTE_TRACKERR => 0x02, NOTE_CHILD => 0x04,

    KEVENT_PACKER => '(QsSLqq)*', KEVENT_PACKER_ONCE => 'QsSLqq',
);

my %names = (
    %poll, %kqueue,
    POLLSTANDARD => 0x03ff & ~0x0100,
    # struct pollfd: the descriptor, the events asked for, the events that it has.
    POLLFD_PACKER => '(iss)*', POLLFD_PACKER_ONCE => 'iss',
);
require constant;
constant->import(\%names);

our @EXPORT      = sort keys %names;
our @EXPORT_OK   = @EXPORT;
our %EXPORT_TAGS = (all => \@EXPORT);

1;
__END__

=head1 NAME

Pipework::FD::Constants - what Pipework::FD::poll is asked, and answers

=head1 SYNOPSIS

    use Pipework::FD;
    use Pipework::FD::Constants;

    Pipework::FD::pipe(my $reader, my $writer);
    my $list = pack POLLFD_PACKER, $reader, POLLIN, 0, $writer, POLLOUT, 0;
    print Pipework::FD::poll($list, 0.5), "\n";    # 1
    my ($fd, $asked, $ready) = unpack POLLFD_PACKER_ONCE, $list;

=head1 DESCRIPTION

Exported by default, with the numbers of Linux: POLLIN POLLPRI POLLOUT POLLRDNORM POLLWRNORM
POLLRDBAND POLLWRBAND POLLERR POLLHUP POLLNVAL. POLLFD_PACKER packs a list of descriptors, the events
asked for and those returned, POLLFD_PACKER_ONCE one of them.

The constants of kqueue are there with their numbers, so that a program for several systems
compiles.

=cut
