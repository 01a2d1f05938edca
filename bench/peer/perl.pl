# Peers that carry calls, messages and bytes in Perl, each used as its manual shows.
#
# perl perl.pl SHAPE ENGINE OPERATIONS BYTES. Prints one line of five numbers: operations, bytes that
# came, seconds on the clock, CPU seconds of the other process and of this one. In `call`, `batch` and
# `stream` the other one is forked; making and ending it is not counted. Where nothing is moved, an
# operation counts as one byte. A missing peer ends with "Can't locate".
use strict;
use warnings;
use Fcntl qw(O_CREAT O_RDWR SEEK_SET);
use File::Temp qw(tempdir);
use IO::Poll qw(POLLIN);
use IO::Select;
use POSIX ();
use Socket qw(AF_INET AF_UNIX INADDR_LOOPBACK PF_UNSPEC SOCK_STREAM pack_sockaddr_in);
use Time::HiRes qw(CLOCK_PROCESS_CPUTIME_ID clock_gettime time);

my ($shape, $engine, $ops, $bytes) = @ARGV;
my $folder = tempdir(CLEANUP => 1);
my $data = 'x' x $bytes;

sub cpu { return clock_gettime(CLOCK_PROCESS_CPUTIME_ID) }

# Prints what `$work` takes; it returns the bytes that came. Perl may be told what the other
# process has used by the time that it is waited for.
sub measure {
    my ($work, $pid) = @_;
    my ($cpu, $start) = (cpu(), time);
    my $came = $work->();
    my ($seconds, $here) = (time - $start, cpu() - $cpu);
    my $there = 0;
    if ($pid) {
        kill KILL => $pid if $shape ne 'stream';
        waitpid $pid, 0;
        my (undef, undef, $user, $system) = times;
        $there = $user + $system;
    }
    printf "%d %d %.9f %.6f %.6f\n", $ops, $came, $seconds, $there, $here;
    return;
}

sub in_child {
    my ($work) = @_;
    my $pid = fork() // die "fork: $!";
    return $pid if $pid;
    $work->();
    POSIX::_exit(0);
}

# ------------------------------------------------------------------------------ calls

# A function that calls, and one that answers for ever.
my %calls = (
    'pipe pair' => sub {
        pipe(my $request_out, my $request_in) or die $!;
        pipe(my $reply_out, my $reply_in) or die $!;
        return (
            sub { syswrite $request_in, $data; full($reply_out) },
            sub { while (1) { full($request_out); syswrite $reply_in, $data } },
        );
    },
    socketpair => sub {
        socketpair(my $here, my $there, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die $!;
        return (
            sub { syswrite $here, $data; full($here) },
            sub { while (1) { full($there); syswrite $there, $data } },
        );
    },
    'MCE::Channel' => sub {
        require MCE::Channel;
        my ($request, $reply) = map { MCE::Channel->new(impl => 'Simple') } 1, 2;
        return (
            sub { $request->send($data); length $reply->recv },
            sub { while (1) { $reply->send($request->recv) } },
        );
    },
);
for my $class (qw(Pipework::ReqRep Data::ReqRep::Shared)) {
    $calls{$class} = sub {
        my ($server, $client) = shared($class);
        return (
            sub { length $client->req($data) },
            sub { while (1) { my ($request, $id) = $server->recv_wait; $server->reply($id, $request) } },
        );
    };
}

sub shared {
    my ($class) = @_;
    eval "require $class; 1" or die $@;
    my $is_int = $class =~ /::Int$/;
    my $slot = $bytes < 64 ? 64 : $bytes;
    $data = $bytes if $is_int;
    my $server = $class->new_memfd('bench', 64, 64, $is_int ? () : ($slot, 64 * $slot));
    return ($server, "${class}::Client"->new_from_fd($server->memfd));
}

sub full {
    my ($handle) = @_;
    my $got = '';
    sysread $handle, $got, $bytes - length $got, length $got while length $got < $bytes;
    return $bytes;
}

sub call {
    my ($call, $answer) = $calls{$engine}->();
    my $pid = in_child($answer);
    $call->() for 1 .. $ops / 20 + 1;
    measure(sub { my $came = 0; $came += $call->() for 1 .. $ops; $came }, $pid);
    return;
}

# One process that sends, answers and receives; of engines for integers, the number of bytes.
sub alone {
    my ($server, $client) = shared($engine);
    measure(sub {
        my $came = 0;
        for (1 .. $ops) {
            my $id = $client->send($data);
            my ($request, $its) = $server->recv;
            $server->reply($its, $request);
            my $reply = $client->get($id);
            $came += $reply eq $data ? $bytes : die "not the reply: $reply";
        }
        return $came;
    });
    return;
}

# 32 calls in progress.
sub batch {
    my ($server, $client) = shared($engine);
    my $pid = in_child(sub {
        while (1) {
            my @all = $server->recv_wait_multi(32);
            while (my ($request, $id) = splice @all, 0, 2) { $server->reply($id, $request) }
        }
    });
    measure(sub {
        my $came = 0;
        for (1 .. $ops / 32) {
            my @ids = map { $client->send($data) } 1 .. 32;
            $came += length $client->get_wait($_) for @ids;
        }
        return $came;
    }, $pid);
    return;
}

# ------------------------------------------------------------------------------ messages

# A function that sends a message, one that ends, and one that receives: undef at the end.
my %streams = (
    pipe => sub {
        pipe(my $out, my $in) or die $!;
        return (
            sub { syswrite $in, pack('N/a*', $data) },
            sub { CORE::close $in },
            sub {
                read($out, my $len, 4) or return undef;
                read $out, my $got, unpack 'N', $len;
                return $got;
            },
        );
    },
    'MCE::Channel' => sub {
        require MCE::Channel;
        my ($channel, $left) = (MCE::Channel->new(impl => 'Simple'), $ops);
        return (sub { $channel->send($data) }, sub { }, sub { $left-- ? $channel->recv : undef });
    },
);
for my $class (qw(Pipework::Atomic Atomic::Pipe)) {
    $streams{$class} = sub {
        eval "require $class; 1" or die $@;
        my ($r, $w) = $class->pair;
        return (sub { $w->write_message($data) }, sub { $w->close }, sub { scalar $r->read_message });
    };
}

sub stream {
    my ($send, $end, $receive) = $streams{$engine}->();
    pipe(my $go_seen, my $go) or die $!;
    my $pid = in_child(sub {
        close $go;
        sysread $go_seen, my $nothing, 1;
        $send->() for 1 .. $ops;
        $end->();
    });
    $end->();
    measure(sub {
        close $go;
        my $came = 0;
        while (defined(my $message = $receive->())) { $came += length $message }
        return $came;
    }, $pid);
    return;
}

# ------------------------------------------------------------------------------ descriptors

# What is prepared, and what is timed. `::` stands for the engine: its functions are called by their
# full names, as programs call them, and core Perl's by none.
my %fd = (
    write => [
        'defined ::sysopen(my $file, "$folder/file", O_CREAT | O_RDWR) or die $!;',
        '::sysseek($file, 0, SEEK_SET) if !($_ & 255); ::syswrite($file, $data, $bytes);',
    ],
    read => [
        'defined ::sysopen(my $file, "$folder/file", O_CREAT | O_RDWR) or die $!;
        ::syswrite($file, $data) for 1 .. 256; ::sysseek($file, 0, SEEK_SET); my $got;',
        '::sysseek($file, 0, SEEK_SET) if !($_ & 255); ::sysread($file, $got, $bytes);',
    ],
    open => [
        '',
        'defined ::sysopen(my $file, "$folder/file", O_CREAT | O_RDWR) or die $!; ::close($file);',
    ],
    inet => ['', 'defined ::socket(my $socket, AF_INET, SOCK_STREAM, 0) or die $!; ::close($socket);'],
    poll => [
        'pipe my $out, my $in or die $!; syswrite $in, "x"; my $list = pack "iss", fileno $out, POLLIN, 0;',
        '::poll($list, 0) == 1 or die $!;',
    ],
    unix => ['', 'defined ::socket(my $socket, AF_UNIX, SOCK_STREAM, 0) or die $!; ::close($socket);'],
);

sub fd {
    my $is_core = $engine eq 'core Perl';
    $is_core or eval "require $engine; 1" or die $@;
    return accepts($is_core) if $shape eq 'accept';
    return polls() if $shape eq 'poll' && $is_core;
    my ($prepare, $do) = map { s/(?<!\w)::/$is_core ? 'CORE::' : "${engine}::"/ger } @{$fd{$shape}};
    my $work = eval "$prepare sub { for (1 .. \$ops) { $do } }" or die $@;
    measure(sub { $work->(); $ops * $bytes });
    return;
}

# As the others in `poll`, with the module of core Perl.
sub polls {
    pipe my $out, my $in or die $!;
    syswrite $in, 'x';
    my $poll = IO::Poll->new;
    $poll->mask($out => POLLIN);
    measure(sub { for (1 .. $ops) { $poll->poll(0) == 1 or die $! } $ops * $bytes });
    return;
}

# All connections wait already; those that were accepted stay open until the end.
sub accepts {
    my ($is_core) = @_;
    socket my $listener, AF_INET, SOCK_STREAM, 0 or die $!;
    bind $listener, pack_sockaddr_in(0, INADDR_LOOPBACK) or die $!;
    listen $listener, $ops or die $!;
    $listener->blocking(0);
    my @clients = map { socket my $client, AF_INET, SOCK_STREAM, 0 or die $!; $client } 1 .. $ops;
    connect $_, getsockname $listener or die $! for @clients;
    my $multiple = $is_core ? undef : do { no strict 'refs'; \&{"${engine}::accept_multiple"} };
    my (@new, @peers);
    measure(sub {
        if ($is_core) { while (accept my $one, $listener) { push @new, $one } }
        else { &$multiple(\@new, \@peers, fileno $listener) }
        return @new * $bytes;
    });
    return;
}

# What a descriptor costs in memory, in bytes, in the place of nanoseconds.
sub memory {
    require Pipework::FD;
    my @open;
    $#open = $ops;
    my $before = resident();
    for (1 .. $ops) {
        my $made;
        if ($engine eq 'core Perl') { open $made, '<', '/dev/null' or die $! }
        else { Pipework::FD::sysopen($made, '/dev/null', 0) // die $! }
        $open[$_] = $made;
    }
    printf "%d %d %.9f 0 0\n", $ops, $ops * $bytes, (resident() - $before) / 1e9;
    return;
}
sub resident {
    open my $file, '<', '/proc/self/statm' or die $!;
    return (split ' ', readline $file)[1] * POSIX::sysconf(POSIX::_SC_PAGESIZE());
}

my %shapes = (memory => \&memory, call => \&call, alone => \&alone, batch => \&batch, stream => \&stream);
($shapes{$shape} // \&fd)->();
