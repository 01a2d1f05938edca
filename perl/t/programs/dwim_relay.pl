# A relay between clients and a back end: the same code once with descriptors and once with handles,
# thousands of messages each.
use strict;
use warnings;
use File::Temp qw(tempdir);
use IO::FD::DWIM ':all';
use IO::Select;
use Socket;
use Symbol qw(gensym);

alarm 10;
my ($CLIENTS, $MESSAGES) = (3, 800);
my $folder = tempdir(CLEANUP => 1);

sub child {
    my ($code) = @_;
    my $pid = fork;
    die "fork: $!" if !defined $pid;
    return $pid if $pid;
    alarm 10;
    $code->();
    exit 0;
}

# Reads until there are so many bytes; undef at the end.
sub take {
    my ($from, $length) = @_;
    my $all = '';
    while (length $all < $length) {
        my $got = sysread $from, $all, $length - length $all, length $all;
        die "sysread: $!" if !defined $got;
        return undef if !$got;
    }
    return $all;
}

sub give {
    my ($to, $data) = @_;
    my $n = syswrite $to, $data;
    die "syswrite: " . ($n // $!) . "\n" if !defined $n || $n != length $data;
    return;
}

for my $kind (qw(descriptors handles)) {
    # A handle where there is one already, a descriptor where the variable is empty.
    my $fresh = sub { return $kind eq 'handles' ? gensym : undef };
    my $address = pack_sockaddr_un("$folder/$kind");
    my $listen = $fresh->();
    socket($listen, AF_UNIX, SOCK_STREAM, 0) // die "socket: $!";
    die "$kind: the socket is $listen\n" if ($kind eq 'handles') != !!ref $listen;
    bind($listen, $address) // die "bind: $!";
    listen($listen, 10) // die "listen: $!";

    # The back end: turns each message round.
    my ($near, $far) = ($fresh->(), $fresh->());
    socketpair($near, $far, AF_UNIX, SOCK_STREAM, PF_UNSPEC) // die "socketpair: $!";
    my $backend = child(sub {
        close $_ for $listen, $near;
        while (defined(my $head = take($far, 4))) {
            my $message = take($far, unpack 'N', $head);
            give($far, pack 'N/a*', scalar reverse $message);
        }
    });
    close $far;

    my @clients = map {
        my $client = $_;
        child(sub {
            close $_ for $listen, $near;
            my $socket = $fresh->();
            socket($socket, AF_UNIX, SOCK_STREAM, 0) // die "socket: $!";
            connect($socket, $address) // die "connect: $!";
            for my $n (1 .. $MESSAGES) {
                my $message = "$client $n " . 'y' x ($n % 300);
                give($socket, pack 'N/a*', $message);
                my $back = take($socket, unpack 'N', take($socket, 4));
                die "$kind: answer $back\n" if $back ne reverse $message;
            }
            close $socket;
        });
    } 1 .. $CLIENTS;

    my (%open, $relayed);
    my $select = IO::Select->new;
    for (1 .. $CLIENTS) {
        my $socket = $fresh->();
        my $peer = accept($socket, $listen);
        die "accept: $!" if !defined $peer;
        my $number = fileno $socket;
        die "no number\n" if !defined $number;
        $open{$number} = $socket;
    }
    while (%open) {
        my $bits = '';
        vec($bits, $_, 1) = 1 for keys %open;
        select(my $out = $bits, undef, undef, 5) > 0 or die "nothing comes\n";
        for my $number (grep { vec $out, $_, 1 } keys %open) {
            my $head = take($open{$number}, 4);
            if (!defined $head) {
                close delete $open{$number};
                next;
            }
            give($near, $head . take($open{$number}, unpack 'N', $head));
            my $length = take($near, 4);
            give($open{$number}, $length . take($near, unpack 'N', $length));
            $relayed++;
        }
    }
    close $near;
    close $listen;
    for my $pid ($backend, @clients) {
        waitpid $pid, 0;
        die "$kind: a child ended with $?\n" if $?;
    }
    die "$kind: $relayed relayed\n" if $relayed != $CLIENTS * $MESSAGES;
}
print "done\n";
