# A server that sends its input back, for any number of connections in one process:
#
#     perl eg/fd_echo.pl 7777        # and then: nc 127.0.0.1 7777
#
# Port 0 is any that is free.
use strict;
use warnings;
use Pipework::FD;
use Pipework::FD::Constants;
use Socket qw(:DEFAULT SOCK_NONBLOCK);

my $port = shift // 7777;
defined Pipework::FD::socket(my $listener, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0) or die $!;
defined Pipework::FD::setsockopt($listener, SOL_SOCKET, SO_REUSEADDR, 1) or die $!;
defined Pipework::FD::bind($listener, pack_sockaddr_in($port, INADDR_LOOPBACK)) or die "bind: $!";
defined Pipework::FD::listen($listener, SOMAXCONN) or die $!;
$| = 1;
print 'port ', (unpack_sockaddr_in(Pipework::FD::getsockname($listener)))[0], "\n";

# A client that is gone must not end the server.
local $SIG{PIPE} = 'IGNORE';

# The bytes that each connection has still to get.
my %pending;
while (1) {
    my $list = pack POLLFD_PACKER_ONCE, $listener, POLLIN, 0;
    $list .= pack POLLFD_PACKER_ONCE, $_,
        length $pending{$_} ? POLLOUT : POLLIN, 0 for keys %pending;
    defined Pipework::FD::poll($list, undef) or next;    # a signal

    my @ready = unpack POLLFD_PACKER, $list;
    while (my ($fd, undef, $is) = splice @ready, 0, 3) {
        next if !$is;
        if ($fd == $listener) {
            Pipework::FD::accept_multiple(my @new, my @peers, $listener) // next;
            $pending{$_} = '' for @new;
        } elsif ($is & POLLOUT) {
            my $count = Pipework::FD::syswrite($fd, $pending{$fd});
            defined $count ? substr($pending{$fd}, 0, $count, '') : hang_up($fd);
        } else {
            my $count = Pipework::FD::sysread($fd, $pending{$fd}, 65536);
            hang_up($fd) if !$count;
        }
    }
}

sub hang_up {
    my ($fd) = @_;
    delete $pending{$fd};
    Pipework::FD::close($fd);
    return;
}
