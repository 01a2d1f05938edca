# A TCP server that echoes lines, with descriptors only, and the clients that try it.
use strict;
use warnings;
use Fcntl;
use File::Temp qw(tempdir);
use IO::FD;
use Socket ':all';

alarm 10;
my $folder = tempdir(CLEANUP => 1);
die "Error creating socket: $!"
    unless defined IO::FD::socket(my $listen_fd, AF_INET, SOCK_STREAM, 0);
my ($err, @addresses) = getaddrinfo '127.0.0.1', 0, {
    family   => AF_INET,
    socktype => SOCK_STREAM,
    flags    => AI_NUMERICHOST | AI_PASSIVE,
};
die "getaddrinfo: $err" if $err;
die "Error setting" unless defined IO::FD::setsockopt($listen_fd, SOL_SOCKET, SO_REUSEADDR, 1);
my $set = IO::FD::getsockopt($listen_fd, SOL_SOCKET, SO_REUSEADDR);
die "SO_REUSEADDR is off\n" if !unpack 'i', $set;
die "Error binding: $!" unless defined IO::FD::bind($listen_fd, $addresses[0]{addr});
die "Error listening: $!" unless defined IO::FD::listen($listen_fd, 10);
my ($port) = unpack_sockaddr_in(IO::FD::getsockname($listen_fd));
die "no port\n" if !$port;

my $CLIENTS = 4;
my @clients;
for my $client (1 .. $CLIENTS) {
    my $pid = fork;
    die "fork: $!" if !defined $pid;
    if (!$pid) {
        alarm 10;
        die "Error creating socket" unless defined IO::FD::socket(my $fd, AF_INET, SOCK_STREAM, 0);
        die "Error connecting: $!"
            unless defined IO::FD::connect($fd, pack_sockaddr_in($port, INADDR_LOOPBACK));
        my ($peer) = unpack_sockaddr_in(IO::FD::getpeername($fd));
        die "peer port $peer\n" if $peer != $port;
        for my $n (1 .. 50) {
            my $line = "client $client line $n\n";
            my $sent = $n % 2 ? IO::FD::syswrite($fd, $line) : IO::FD::send($fd, $line, 0);
            die "Error writing: $!" unless defined $sent;
            die "sent $sent\n" if $sent != length $line;
            my $back = '';
            while (length $back < length $line) {
                my $got = IO::FD::sysread $fd, $back, 1024, length $back;
                die "Error reading: $!" unless defined $got;
                die "the server is gone\n" if !$got;
            }
            die "echo: $back" if $back ne $line;
        }
        die "Error closing" unless defined IO::FD::close $fd;
        exit 0;
    }
    push @clients, $pid;
}

# The log of the server is a file, opened as the manual opens one.
my $path = "$folder/log.txt";
die 'could not open file'
    unless defined IO::FD::sysopen(my $log, $path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
my $bytes = 0;
for my $n (1 .. $CLIENTS) {
    my $client_fd;
    my $peer = $n % 2 ? IO::FD::accept($client_fd, $listen_fd)
        : IO::FD::accept4($client_fd, $listen_fd, SOCK_CLOEXEC);
    die "Error accepting: $!" unless defined $peer;
    my (undef, $address) = unpack_sockaddr_in(IO::FD::getpeername($client_fd));
    die "not from here\n" if inet_ntoa($address) ne '127.0.0.1';
    while (1) {
        my $got = IO::FD::sysread($client_fd, my $buffer, 4096);
        die "Error reading: $!" unless defined $got;
        last if !$got;
        $bytes += $got;
        die "Error writing: $!" unless defined IO::FD::syswrite $client_fd, $buffer;
        die "Error writing: $!" unless defined IO::FD::syswrite $log, $buffer, length $buffer, 0;
    }
    IO::FD::close($client_fd);
}
IO::FD::close $_ for $log, $listen_fd;
for my $pid (@clients) {
    waitpid $pid, 0;
    die "a client ended with $?\n" if $?;
}

# Slurp the log, and compare it to the clients' lines.
die "open: $!" unless defined IO::FD::sysopen(my $fd, $path, O_RDONLY);
my @stat = IO::FD::stat $fd;
die "stat: $stat[7] of $bytes\n" if @stat != 13 || $stat[7] != $bytes;
my $text = do { local $/; IO::FD::readline $fd };
IO::FD::close $fd;
my %lines;
/^client (\d) line (\d+)$/ ? $lines{$1}++ : die "line: $_\n" for split /\n/, $text;
die "clients in the log: " . keys(%lines) . "\n" if keys %lines != $CLIENTS;
die "lines\n" if grep { $_ != 50 } values %lines;
die "a file that is not there\n" if defined IO::FD::sysopen my $not, "$folder/not", O_RDONLY;
die "errno\n" if !$!{ENOENT};
print "done\n";
