package Loopback;

# Whether 127.0.0.1 can be reached: where packages are built apart, there may be no interface at all.
use strict;
use warnings;
use Exporter qw(import);
use Socket;

our @EXPORT = qw(no_loopback asks_for_loopback);

# Why tests that need it are skipped, or the empty string.
sub no_loopback {
    my $one;
    my $sent = socket($one, AF_INET, SOCK_DGRAM, 0)
        && bind($one, pack_sockaddr_in(0, INADDR_LOOPBACK))
        && connect($one, getsockname $one)
        && send($one, 'x', 0);
    return $sent ? '' : "no loopback interface: $!";
}

# Whether a program needs it.
sub asks_for_loopback { return $_[0] =~ /INADDR_LOOPBACK|127\.0\.0\.1/ }

1;
