# A hub in one process serves many connections of several processes: accept_multiple, poll and
# sendfile on descriptors that do not block.
use strict;
use warnings;
use Errno qw(EAGAIN EWOULDBLOCK);
use Fcntl;
use File::Temp qw(tempdir);
use IO::FD;
use IO::FD::Constants;
use Socket;

alarm 10;
my ($PROCESSES, $EACH, $MESSAGES) = (5, 8, 60);
my $folder = tempdir(CLEANUP => 1);
my $report = join '', map { "line $_ of the report\n" } 1 .. 3000;

defined IO::FD::socket(my $listen, AF_UNIX, SOCK_STREAM, 0) or die "socket: $!";
defined IO::FD::bind($listen, pack_sockaddr_un("$folder/hub")) or die "bind: $!";
defined IO::FD::listen($listen, 128) or die "listen: $!";
my $flags = IO::FD::fcntl($listen, F_GETFL, 0);
defined IO::FD::fcntl($listen, F_SETFL, $flags | O_NONBLOCK) or die "fcntl: $!";
my $none = IO::FD::accept_multiple(my @nobody, my @nowhere, $listen);
die "someone was accepted\n" if defined $none || @nobody;
die "errno: $!\n" if $! != EAGAIN && $! != EWOULDBLOCK;

# The report is in a file without a name.
my $template = "$folder/reportXXXXXX";
my ($source, $name) = IO::FD::mkstemp($template);
defined $source or die "mkstemp: $!";
my $wrote = IO::FD::pwrite($source, $report, length $report, 0);
die "pwrite\n" if $wrote != length $report;
unlink $name or die "unlink: $!";

my @children;
for my $process (1 .. $PROCESSES) {
    my $pid = fork;
    die "fork: $!" if !defined $pid;
    if (!$pid) {
        alarm 10;
        IO::FD::close($_) for $listen, $source;
        my @fds = map {
            defined IO::FD::socket(my $fd, AF_UNIX, SOCK_STREAM, 0) or die "socket: $!";
            defined IO::FD::connect($fd, pack_sockaddr_un("$folder/hub")) or die "connect: $!";
            $fd;
        } 1 .. $EACH;
        for my $n (1 .. $MESSAGES) {
            for my $fd (@fds) {
                my $message = pack 'N/a*', "$process $fd $n " . 'm' x ($n * 10);
                my $sent = IO::FD::syswrite2($fd, $message);
                die "sent\n" if !defined $sent || $sent != length $message;
            }
            for my $fd (@fds) {
                my $got = IO::FD::recv($fd, my $sum, 4, MSG_WAITALL);
                die "recv: $!\n" if !defined $got;
                die "answer\n" if unpack('N', $sum) != length("$process $fd $n ") + $n * 10;
            }
        }
        for my $fd (@fds) {
            IO::FD::syswrite($fd, pack 'N/a*', 'report') or die "write: $!";
            my $all = '';
            while (my $got = IO::FD::sysread4($fd, $all, 65_536, length $all)) { }
            die "the report has " . length($all) . " bytes\n" if $all ne $report;
            IO::FD::close($fd);
        }
        exit 0;
    }
    push @children, $pid;
}

my (%buffer, %offset, $served, $reports, $accepted);
$_ = 0 for $served, $reports, $accepted;
while ($reports < $PROCESSES * $EACH) {
    my @watch = map { ($_, exists $offset{$_} ? POLLOUT : POLLIN, 0) } keys %buffer;
    my $list = pack POLLFD_PACKER, $listen, POLLIN, 0, @watch;
    my $ready = IO::FD::poll($list, 2);
    die "poll: $!\n" if !defined $ready;
    die "nothing happens\n" if $ready <= 0;
    my @events = unpack POLLFD_PACKER, $list;
    while (my ($fd, undef, $what) = splice @events, 0, 3) {
        next if !$what;
        die "fd $fd is not valid\n" if $what & POLLNVAL;
        if ($fd == $listen) {
            my (@new, @peers);
            my $count = IO::FD::accept_multiple(@new, @peers, $listen);
            next if !defined $count;
            die "count $count\n" if $count != @new || $count != @peers;
            die "it blocks\n" if grep { !(IO::FD::fcntl($_, F_GETFL, 0) & O_NONBLOCK) } @new;
            $accepted += $count;
            $buffer{$_} = '' for @new;
        } elsif (exists $offset{$fd}) {
            my $sent = IO::FD::sendfile($fd, $source, length($report) - $offset{$fd}, $offset{$fd});
            next if !defined $sent && $! == EAGAIN;
            die "sendfile: $!\n" if !defined $sent;
            next if ($offset{$fd} += $sent) < length $report;
            IO::FD::close($fd);
            delete $_->{$fd} for \%buffer, \%offset;
            $reports++;
        } else {
            my $got = IO::FD::sysread($fd, $buffer{$fd}, 65_536, length $buffer{$fd});
            die "sysread: $!\n" if !$got;
            while (length $buffer{$fd} >= 4) {
                last if length $buffer{$fd} < 4 + unpack 'N', $buffer{$fd};
                my $message = unpack 'N/a*', $buffer{$fd};
                substr $buffer{$fd}, 0, 4 + length $message, '';
                if ($message eq 'report') { $offset{$fd} = 0; last }
                $served++;
                IO::FD::syswrite($fd, pack 'N', length $message) == 4 or die "write: $!";
            }
        }
    }
}
for my $pid (@children) {
    waitpid $pid, 0;
    die "a child ended with $?\n" if $?;
}
die "accepted $accepted\n" if $accepted != $PROCESSES * $EACH;
die "served $served\n" if $served != $PROCESSES * $EACH * $MESSAGES;
IO::FD::close($_) for $listen, $source;
print "done\n";
