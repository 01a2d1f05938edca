# Perl's names on handles and descriptors side by side: flags, ioctl, datagrams, records, standard
# handles, and failures.
use strict;
use warnings;
use Fcntl qw(:DEFAULT :seek);
use File::Temp qw(tempdir);
use IO::FD;
use IO::FD::DWIM ':all';
use Socket;

alarm 10;
my $FIONREAD = 0x541B;
my $folder = tempdir(CLEANUP => 1);
open my $handle, '+>', "$folder/handle" or die "open: $!";
sysopen(my $fd, "$folder/fd", O_RDWR | O_CREAT | O_EXCL, 0600) // die "sysopen: $!";
die "a second time\n" if defined sysopen my $again, "$folder/fd", O_RDWR | O_CREAT | O_EXCL;
die "errno: $!\n" if !$!{EEXIST};

# Standard handles by reference are handles.
die "fileno of STDOUT\n" if fileno(\*STDOUT) != 1 || fileno(*STDIN{IO}) != 0;
die "fileno of 1\n" if fileno(1) != 1;

# Flags of both kinds, in Perl's way: zero is true.
for my $file ($handle, $fd) {
    my $flags = fcntl $file, F_GETFL, 0;
    die "F_GETFL of $file: $!\n" if !defined $flags;
    die "not for reading and writing\n" if ($flags & O_ACCMODE) != O_RDWR;
    defined fcntl $file, F_SETFL, $flags | O_APPEND or die "F_SETFL: $!";
    die "O_APPEND\n" if !(fcntl($file, F_GETFL, 0) & O_APPEND);
    my $close = fcntl $file, F_GETFD, 0;
    die "F_GETFD of $file\n" if !defined $close || !($close & FD_CLOEXEC);

    # The same writes, and reads as records and as a list.
    die "short write\n" if syswrite($file, "one two three") != 13;
    die "part\n" if syswrite($file, '__ four__', 5, 2) != 5;
    defined sysseek $file, 0, SEEK_SET or die "seek: $!";
    my @records = do { local $/ = \4; readline $file };
    die "records of $file: " . join('|', @records) . "\n"
        if join('|', @records) ne 'one |two |thre|e fo|ur';
    my $end = do { local $/ = \4; readline $file };
    die "after the end\n" if defined $end;
    my $read = sysread $file, my $none, 10;
    die "sysread at the end\n" if !defined $read || $read != 0 || $none ne '';
}

# Descriptor of a handle, and both see the same file.
my $number = fileno $handle;
die "fileno\n" if $number != CORE::fileno($handle);
my @by_handle = stat $handle;
my @by_number = stat $number;
die "stat: @by_handle, @by_number\n" if "@by_handle" ne "@by_number";
symlink "$folder/fd", "$folder/link" or die "symlink: $!";
die "lstat of a link\n" if !-l "$folder/link" || (lstat "$folder/link")[1] == (stat $fd)[1];
die "stat of a link\n" if (stat "$folder/link")[1] != (stat $fd)[1];

# Pipes: the number of waiting bytes, by ioctl on a handle.
pipe(my $r, my $w) // die "pipe: $!";
syswrite $w, 'waiting';
open my $reader, '<&=', $r or die "open: $!";
my $count = pack 'i', 0;
defined ioctl $reader, $FIONREAD, $count or die "ioctl: $!";
die "waiting: " . unpack('i', $count) . "\n" if unpack('i', $count) != 7;
my $got = sysread $r, my $text, 100;
die "read from the descriptor: $text\n" if $got != 7 || $text ne 'waiting';
close $w;
die "the end\n" if sysread($reader, $text, 100) != 0;

# Datagrams between a descriptor and a handle.
socket(my $server, AF_INET, SOCK_DGRAM, 0) // die "socket: $!";
die "no descriptor\n" if ref $server;
bind($server, pack_sockaddr_in(0, INADDR_LOOPBACK)) // die "bind: $!";
my $where = getsockname $server;
CORE::socket(my $client, AF_INET, SOCK_DGRAM, 0) or die "socket: $!";
for my $size (0, 1, 1000) {
    my $sent = send $client, 'd' x $size, 0, $where;
    die "sent " . ($sent // $!) . " of $size\n" if !defined $sent || $sent != $size;
    my $from = recv $server, my $datagram, 2000, 0;
    die "recv: $!" if !defined $from;
    die "a datagram of " . length($datagram) . "\n" if $datagram ne 'd' x $size;
    my ($port) = unpack_sockaddr_in($from);
    die "from port $port\n" if $port != (unpack_sockaddr_in(getsockname $client))[0];
}
for my $socket ($server, $client) {
    defined setsockopt $socket, SOL_SOCKET, SO_BROADCAST, 1 or die "setsockopt: $!";
    my $value = getsockopt $socket, SOL_SOCKET, SO_BROADCAST;
    die "SO_BROADCAST\n" if !unpack 'i', $value;
}
connect($client, $where) // die "connect: $!";
die "peer\n" if getpeername($client) ne $where;
die "no peer\n" if defined getpeername $server;

# Closed once; a second close is an error, not an exception.
for my $file ($fd, $server, $client, $handle, $reader) {
    die "close of $file\n" if !defined close $file;
}
die "the descriptor is open still\n" if defined sysread($fd, $text, 1) || !$!{EBADF};
die "closed twice\n" if defined close($fd) || !$!{EBADF};
print "done\n";
