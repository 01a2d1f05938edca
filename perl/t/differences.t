# Each row of the tables in COMPAT.md on differences from the originals: the text
# under "here" is tried. A row without a trial fails, and so does a trial without a row.
use strict;
use warnings;
use Cwd qw(abs_path);
use Errno qw(ECONNRESET ESTALE);
use Fcntl;
use File::Basename qw(dirname);
use File::Temp qw(tempdir tempfile);
use FindBin ();
use lib $FindBin::Bin;
use Asleep qw(alarm_asleep);
use POSIX ();
use Socket;
use Test::More;
use Pipework::Atomic;
use Pipework::FD;
use Pipework::FD::Constants;
use Pipework::FD::DWIM ();
use Pipework::ReqRep;

my $root = dirname(dirname(abs_path(__FILE__)));
-e "$root/COMPAT.md" or plan skip_all => 'COMPAT.md is not here';
my $folder = tempdir(CLEANUP => 1);
alarm 120;

my ($atomic, $shared) = ('Pipework::Atomic', 'Pipework::ReqRep');

# The exception of a call; '' if it does not die.
sub dies { my ($call) = @_; return eval { $call->(); 1 } ? '' : "$@" }

sub warnings_of {
    my ($call) = @_;
    my @all;
    local $SIG{__WARN__} = sub { push @all, @_ };
    $call->();
    return "@all";
}

sub in_child {
    my ($code) = @_;
    my $pid = fork // die $!;
    POSIX::_exit(eval { $code->() } ? 0 : 1) if !$pid;
    waitpid $pid, 0;
    return $? == 0;
}

# A server and a client, in a segment of their own.
sub ends {
    my ($class, @sizes) = @_ ? @_ : ($shared, 8, 4, 64);
    my $srv = $class->new(undef, @sizes);
    return ($srv, "${class}::Client"->new_from_fd($srv->memfd));
}

sub file_with {
    my ($bytes) = @_;
    my ($fh, $path) = tempfile(DIR => $folder);
    syswrite $fh, $bytes;
    return $path;
}

# An open descriptor of a file, and its path.
sub opened {
    my $path = file_with(@_);
    Pipework::FD::sysopen(my $fd, $path, O_RDWR) // die $!;
    return ($fd, $path);
}

sub content { my ($path) = @_; open my $fh, '<:raw', $path or die $!; local $/; return readline($fh) // '' }

sub cloexec { return fcntl_of($_[0], F_GETFD) & FD_CLOEXEC }
sub fcntl_of { my ($fd, $which) = @_; return Pipework::FD::fcntl($fd, $which, 0) }

# By the table, and by the words that begin the row.
my %trials;
$trials{'Atomic::Pipe'} = {
    'a writer without a reader gets SIGPIPE' => sub {
        my ($r, $w) = $atomic->pair;
        $r->close;
        local $SIG{PIPE} = sub { die 'SIGPIPE' };
        return dies(sub { $w->write_message('x') }) =~ /^Disconnected pipe/;
    },
    'stray control bytes' => sub {
        my $text = "a\x0Eb\x0F\x10c\n";
        my ($r, $w) = $atomic->pair(mixed_data_mode => 1);
        syswrite $w->wh, "$text\x0Eburst\x0F";
        my @line = $r->get_line_burst_or_data;
        my ($strict, $to) = $atomic->pair(mixed_data_mode => 1, strict => 1);
        syswrite $to->wh, "\x0E half a burst";
        $to->close;
        return "@line" =~ /^(?:line|burst) / && dies(sub { 1 while $strict->get_line_burst_or_data });
    },
    'a burst with control bytes' => sub {
        my (undef, $w) = my @pair = $atomic->pair(mixed_data_mode => 1);
        return dies(sub { $w->write_burst("a\x0Fb") });
    },
    'an empty message' => sub {
        my ($r, $w) = $atomic->pair;
        return $w->write_message('') == 1 && $r->read_message eq '';
    },
    'at the end of a plain pipe' => sub {
        my ($r, $w) = $atomic->pair;
        syswrite $w->wh, pack 'l2L2a3', 1234, 0, 1, 3, 'abc';
        $w->close;
        my $warned = warnings_of(sub { $r->read_message });
        my @told;
        ($r, $w) = $atomic->pair(on_torn => sub { push @told, @_ });
        syswrite $w->wh, pack 'l2L2a3', 1234, 0, 1, 3, 'abc';
        $w->close;
        return $warned && warnings_of(sub { $r->read_message }) eq '' && $told[0]{bytes} == 3;
    },
    'other keys of the hash' => sub {
        my ($r, $w) = $atomic->pair;
        $w->write_message('x');
        my @keys    = grep { exists $r->{$_} || exists $w->{$_} } qw(out_buffer state);
        return !@keys && !$atomic->can('_write_burst');
    },
    '`tid` is the thread' => sub {
        my ($r, $w) = $atomic->pair;
        my $other = $w->clone_writer;
        $_->write_message('x') for $w, $other;
        my ($one, $two) = map { $r->read_message(debug => 1)->{tid} } 1, 2;
        return $one != $two && $one > 65_535;
    },
    '`debug => 1` of Atomic::Pipe' => sub {
        my ($r, $w) = $atomic->pair;
        $w->write_message('x' x 5000);
        my $shown = $r->read_message(debug => 1);
        $w->write_message('x' x 5000);
        sysread $r->rh, my $header, 16;
        my ($pid, $tid, $id) = unpack 'L4', $header;
        return $shown->{pid} == $$ && "@{$shown->{parts}}" eq '1 0'
            && ($pid & (1 << 22) - 1) == $$ && $tid != $shown->{tid} && $id == 1 + 2**31;
    },
    '`blocking` is undef before' => sub {
        my ($r, $w) = $atomic->pair;
        return $r->blocking == 1 && $w->blocking == 1;
    },
    '`blocking(0)` sets O_NONBLOCK' => sub {
        my ($r) = my @pair = $atomic->pair;
        $_->blocking(0) for @pair;
        $r->read_message;
        return !grep { fcntl($_, F_GETFL, 0) & O_NONBLOCK } $r->rh, $pair[1]->wh;
    },
    'a message may be as long' => sub {
        my ($r, $w) = $atomic->pair(max_message => 100);
        $w->write_message('x' x 101);
        $w->write_message('x' x 100);
        return dies(sub { $r->read_message }) =~ /longer than max_message/
            && length $r->read_message == 100;
    },
    'a compressed burst' => sub {
        # Its frame says that it has 15 bytes, which is 0x0F.
        my $burst = 'fifteen letters';
        my ($r, $w) = $atomic->pair(compression => 'zstd', mixed_data_mode => 1);
        $w->write_burst($burst);
        sysread $r->rh, my $raw, 4096;
        $w->write_burst($burst);
        return substr($raw, 1, -1) =~ /\x0F/ && join(' ', $r->get_line_burst_or_data) eq "burst $burst";
    },
    'frames with a dictionary' => sub {
        my @zstd = (compression => 'zstd');
        my @all  = map {
            my ($r, $w) = $atomic->pair(@zstd);
            my $with = $atomic->from_fh('<&', $r->rh, @zstd,
                compression_dictionary => 'words of a dictionary', accept_unchecked => $_);
            $w->write_message('hello');
            eval { $with->read_message } // "$@";
        } 0, 1;
        return $all[0] =~ /accept_unchecked/ && $all[1] eq 'hello';
    },
    'a handler runs after the wait' => sub {
        my ($r, $w) = $atomic->pair;
        local $SIG{ALRM} = sub { $w->write_message('of the handler') };
        alarm_asleep;
        return $r->read_message eq 'of the handler';
    },
    'two readers of one pipe' => sub {
        my ($r, $w) = $atomic->pair;
        my $other = $r->clone_reader;
        $w->write_message($_ x 9000) for 'a', 'b';
        return $r->read_message eq 'a' x 9000 && $other->read_message eq 'b' x 9000;
    },
};
$trials{'IO::FD and IO::FD::DWIM'} = {
    'a descriptor must have been made' => sub {
        my ($fd) = opened('abc');
        return Pipework::FD::sysread("$fd", my $one, 1) == 1
            && Pipework::FD::sysread($fd + 0.0, my $two, 1) == 1;
    },
    '`sysread` into undef' => sub {
        my ($fd) = opened('abcdef');
        my $held = 'xyz';
        my $fresh;
        return Pipework::FD::sysread($fd, $fresh, 2) == 2 && $fresh eq 'ab'
            && Pipework::FD::sysread($fd, $held, 2, -1) == 2 && $held eq 'xycd';
    },
    'a negative length' => sub {
        my ($fd, $path) = opened('abc');
        my $buffer = '';
        my @all = map { dies($_) } (
            sub { Pipework::FD::sysread($fd, $buffer, -1) },
            sub { Pipework::FD::syswrite($fd, 'data', -1) },
            sub { Pipework::FD::pwrite($fd, 'data', -1, 0) },
        );
        return 3 == grep({ /^Negative length/ } @all) && content($path) eq 'abc';
    },
    'a negative offset of `syswrite`' => sub {
        my ($fd, $path) = opened('');
        return Pipework::FD::syswrite($fd, 'abcdef', 2, -3) == 2 && content($path) eq 'de'
            && dies(sub { Pipework::FD::syswrite($fd, 'abc', 1, -4) }) =~ /^Offset outside string/;
    },
    '`syswrite`, `pwrite` and `send` write' => sub {
        my ($fd, $path) = opened('');
        my $plain = "caf\xe9";
        utf8::upgrade(my $upgraded = $plain);
        my $same = Pipework::FD::syswrite($fd, $upgraded) == 4 && content($path) eq $plain
            && Pipework::FD::pwrite($fd, $upgraded, 4, 0) == 4 && content($path) eq $plain;
        socketpair my $one, my $other, AF_UNIX, SOCK_STREAM, 0 or die $!;
        my @wide = map { dies($_) } (
            sub { Pipework::FD::syswrite($fd, "\x{263a}") },
            sub { Pipework::FD::pwrite($fd, "\x{263a}", 1, 0) },
            sub { Pipework::FD::send(fileno $one, "\x{263a}", 0) },
        );
        return $same && Pipework::FD::send(fileno $one, $upgraded, 0) == 4
            && 3 == grep { /^Wide character in (?:syswrite|pwrite|send)/ } @wide;
    },
    '`dup` never sets close-on-exec' => sub {
        my $marked = cloexec(my $one = Pipework::FD::dup(0));
        local $^F = 1000;
        return $marked && !cloexec(my $two = Pipework::FD::dup(0));
    },
    '`sysread` beyond the end' => sub {
        my ($fd) = opened('abc');
        my $buffer = 'x';
        return Pipework::FD::sysread($fd, $buffer, 1, 4) == 1 && $buffer eq "x\0\0\0a";
    },
    '`socketpair` leaves outputs' => sub {
        my ($one, $other) = (-5, -6);
        return Pipework::FD::socketpair($one, $other, AF_UNIX, SOCK_STREAM, 0)
            && $one >= 0 && $other >= 0;
    },
    '`sendfile` returns' => sub {
        my ($fd) = opened('abc');
        socketpair my $one, my $other, AF_UNIX, SOCK_STREAM, 0 or die $!;
        return Pipework::FD::sendfile(fileno $one, $fd, 100, 0) == 3;
    },
    '`pread` and `sysseek`' => sub {
        my ($fd) = opened('abc');
        my $far = 2**40;
        my $byte;
        return Pipework::FD::sysseek($fd, $far, 0) == $far
            && Pipework::FD::pwrite($fd, 'x', 1, $far) == 1
            && Pipework::FD::pread($fd, $byte, 1, $far) == 1 && $byte eq 'x';
    },
    '`poll` cuts the fraction' => sub {
        my $start = Pipework::FD::clock_gettime_monotonic();
        Pipework::FD::poll(undef, 0.2);
        return Pipework::FD::clock_gettime_monotonic() - $start >= 0.19;
    },
    '`ioctl` always returns undef' => sub {
        my ($fd) = opened('abc');
        my $left = pack 'i', 0;
        # FIONREAD
        my $done = Pipework::FD::ioctl($fd, 0x541B, $left);
        return $done eq '0 but true' && unpack('i', $left) == 3;
    },
    '`select` is broken' => sub {
        pipe my $r, my $w or die $!;
        syswrite $w, 'x';
        my $bits = '';
        vec($bits, fileno $r, 1) = 1;
        return Pipework::FD::select($bits, undef, undef, 0) == 1;
    },
    '`readline` without a descriptor' => sub {
        no warnings;
        return dies(sub { Pipework::FD->can('readline')->() }) =~ /^Usage: /;
    },
    'DWIM: a bareword' => sub {
        my $use = 'use strict; use Pipework::FD::DWIM ":all"; my $call = sub {';
        eval "$use sysread(STDIN, my \$x, 1) }; 1" and return 0;
        eval "$use my \@all = stat }; 1" and return 0;
        return eval "$use sysread(\\*STDIN, my \$x, 1); sysread(*STDIN, my \$y, 1) }; 1";
    },
    '`readline` at the end' => sub {
        my ($fd) = opened('abcd');
        local $/ = \2;
        my @all = Pipework::FD::readline($fd);
        return "@all" eq 'ab cd' && !defined Pipework::FD::readline($fd);
    },
    '`getpeername`, `accept` give' => sub {
        my $path = "$folder/socket";
        socket my $listener, AF_UNIX, SOCK_STREAM, 0 or die $!;
        bind $listener, pack_sockaddr_un($path) or die $!;
        listen $listener, 1 or die $!;
        socket my $client, AF_UNIX, SOCK_STREAM, 0 or die $!;
        connect $client, pack_sockaddr_un($path) or die $!;
        return Pipework::FD::getpeername(fileno $client) eq getpeername $client;
    },
    '`setsockopt` with a string' => sub {
        socket my $socket, AF_INET, SOCK_STREAM, 0 or die $!;
        Pipework::FD::setsockopt(fileno $socket, SOL_SOCKET, SO_KEEPALIVE, '1') or return 0;
        return unpack 'i', getsockopt $socket, SOL_SOCKET, SO_KEEPALIVE;
    },
    '`mkstemp` dies without a reason' => sub {
        my ($fd, $path) = Pipework::FD::mkstemp("$folder/temp-XXXXXX");
        return -e $path
            && dies(sub { Pipework::FD::mkstemp("$folder/none/XXXXXX") }) =~ /No such file/;
    },
    'DWIM: `<STDIN>` and' => sub {
        open my $fh, '<', $0 or die $!;
        local *HANDLE = $fh;
        no warnings;
        return Pipework::FD::DWIM::close(*HANDLE) && !defined fileno $fh;
    },
    '`accept_multiple` never returns' => sub {
        my $path = "$folder/listener";
        socket my $listener, AF_UNIX, SOCK_STREAM, 0 or die $!;
        bind $listener, pack_sockaddr_un($path) or die $!;
        listen $listener, 5 or die $!;
        my @clients = map {
            socket my $client, AF_UNIX, SOCK_STREAM, 0 or die $!;
            connect $client, pack_sockaddr_un($path) or die $!;
            $client;
        } 1 .. 3;
        my $count = Pipework::FD::accept_multiple(my @new, my @peers, fileno $listener);
        return $count == 3 && @new == 3;
    },
    'DWIM: `sysread` of a descriptor' => sub {
        my ($fd, $path) = opened('abc');
        open my $fh, '<', $path or die $!;
        my $buffer;
        return Pipework::FD::DWIM::sysread($fd, $buffer, 3) == 3 && $buffer eq 'abc'
            && (Pipework::FD::DWIM::stat($fh))[7] == 3;
    },
    '`POLLWRNORM`, `POLLWRBAND`' => sub { return POLLWRNORM == 0x100 && POLLWRBAND == 0x200 },
    '`kqueue`, `kevent`' => sub {
        my @names = qw(kqueue kevent pack_kevent sv_to_pointer pointer_to_sv);
        return @names == grep { my $sub = Pipework::FD->can($_); dies(sub { $sub->(1) }) } @names;
    },
    'constants of `Fcntl`' => sub {
        return Pipework::FD::SOCK_NONBLOCK() && Pipework::FD::SOCK_CLOEXEC()
            && !Pipework::FD->can('O_RDONLY') && !Pipework::FD->can('AF_INET');
    },
};
$trials{'Data::ReqRep::Shared'} = {
    'a cancelled request' => sub {
        my ($srv, $cli) = ends();
        $cli->cancel($cli->send('x'));
        return !defined $srv->recv;
    },
    '`send` is refused when' => sub {
        my ($srv, $cli) = ends($shared, 1, 4, 64);
        my @ids = map { $cli->send('x') } 1 .. 5;
        return 4 == grep { defined } @ids;
    },
    '`capacity` is `req_cap`' => sub {
        my %given = (1 => 8, 8 => 8, 9 => 16, 1000 => 1024);
        return !grep { $shared->new(undef, $_, 4, 64)->capacity != $given{$_} } keys %given;
    },
    '`arena` is memory' => sub {
        my ($srv, $cli) = ends($shared, 64, 4, 64, 5000);
        my $stats = $srv->stats;
        my $small = (stat "/proc/self/fd/" . $srv->memfd)[12];
        my $big   = $shared->new(undef, 64, 4, 64, 64 << 20);
        return $stats->{arena_cap} == 5000 && 4 == grep({ defined } map { $cli->send('x' x 5000) } 1 .. 4)
            && dies(sub { $cli->send('x' x 5001) }) && (stat "/proc/self/fd/" . $big->memfd)[12] < 2048;
    },
    'any number of objects' => sub {
        # Each has a descriptor.
        return 'skip' if POSIX::sysconf(POSIX::_SC_OPEN_MAX()) < 512;
        # In a process that has no other segments.
        return in_child(sub {
            my $path = "$folder/many";
            my $srv  = $shared->new($path, 8, 4, 64);
            my @clients;
            while (my $one = eval { "${shared}::Client"->new($path) }) {
                push @clients, $one;
                last if @clients > 300;
            }
            return @clients == 301 && $srv->geometry->{members} == 1024;
        });
    },
    '`clear` ends every call' => sub {
        my ($srv, $cli) = ends();
        my @ids = map { $cli->send($_) } 'taken', 'waiting';
        my $taken = $srv->recv;
        $srv->clear;
        return $cli->pending == 2 && !defined $cli->get($ids[1]) && $cli->pending == 1
            && $srv->reply($taken, 'answer') && $cli->get($ids[0]) eq 'answer';
    },
    '`stats->{replies}` counts' => sub {
        my ($srv, $cli) = ends();
        my $id = $cli->send('x');
        my $taken = $srv->recv;
        $cli->cancel($id);
        return !$srv->reply($taken, 'late') && $srv->stats->{replies} == 1;
    },
    '`unlink` dies if' => sub {
        my $path = "$folder/unlinked";
        my $old  = $shared->new($path, 8, 4, 64);
        unlink $path or die $!;
        my $gone = dies(sub { $old->unlink; $shared->unlink($path) });
        my $new = $shared->new($path, 8, 4, 64);
        $old->unlink;
        return $gone eq '' && -e $path;
    },
    '`req` waits for ever' => sub {
        my ($srv, $cli) = ends();
        my $pid = fork // die $!;
        if (!$pid) { $srv->recv_wait; kill KILL => $$ }
        my $response = $cli->req('x');
        my $errno = $! + 0;
        waitpid $pid, 0;
        return !defined $response && $errno == ECONNRESET;
    },
    'any process may' => sub {
        my ($srv, $cli) = ends();
        my $other = "${shared}::Client"->new_from_fd($srv->memfd);
        my $id    = $cli->send('x');
        my $taken = $srv->recv;
        my $child = in_child(sub { $srv->reply($taken, 'of a child') });
        return $child && !defined $other->get($id) && $! == ESTALE && $cli->get($id) eq 'of a child';
    },
    '`pending` counts the process' => sub {
        my ($srv, $cli) = ends();
        my $other = "${shared}::Client"->new_from_fd($srv->memfd);
        $cli->send('x');
        return $cli->pending == 1 && $other->pending == 0;
    },
    '`eventfd_set` keeps' => sub {
        my ($srv, $cli) = ends();
        my $number = $srv->eventfd;
        $cli->req_eventfd_set($number);
        my $same = $cli->req_fileno == $number;
        undef $cli;
        return $same && defined fcntl_of($number, F_GETFD);
    },
    'a file of zeros' => sub {
        my $empty = file_with('');
        my $zeros = file_with("\0" x 8192);
        return $shared->new($empty, 8, 4, 64) && -s $empty
            && dies(sub { $shared->new($zeros, 8, 4, 64) }) =~ /invalid or incompatible/;
    },
    'files of the original' => sub {
        # Its magic number, version, and a size.
        my $file = file_with('RRS1' . pack('L*', 1, 0, 64) . "\0" x 8192);
        my $size = -s $file;
        return dies(sub { $shared->new($file, 8, 4, 64) }) =~ /invalid or incompatible/
            && -s $file == $size;
    },
    'files of another user' => sub {
        return 'skip' if $> != 0;
        my $path = "$folder/others";
        $shared->new($path, 8, 4, 64);
        chown 12_345, -1, $path or die $!;
        return dies(sub { "${shared}::Client"->new($path) }) && "${shared}::Client"->open(path => $path, any_owner => 1);
    },
    'Int: a number that does not fit' => sub {
        my ($srv, $cli) = ends("${shared}::Int", 8, 4);
        my $id = $cli->send(5);
        my $taken = $srv->recv;
        return dies(sub { $cli->send(1e30) }) =~ /^request: number out of range/
            && dies(sub { $srv->reply($taken, 1e30) }) =~ /^response: number out of range/;
    },
    'Int: a kind of segment of its own' => sub {
        my ($srv, $cli) = ends("${shared}::Int", 8, 4);
        my $sizes = $srv->geometry;
        return $sizes->{request_bytes} == 8 && $sizes->{reply_bytes} == 8
            && dies(sub { "${shared}::Client"->new_from_fd($srv->memfd) }) =~ /integers/;
    },
    '`recv_waiters`' => sub {
        my $stats = (ends())[0]->stats;
        return !grep { $stats->{$_} != 0 } qw(recv_waiters send_waiters slot_waiters arena_used);
    },
    'threads get no objects' => sub {
        return 'skip' if !eval { require threads };
        my ($srv, $cli) = ends();
        my $id = threads->create(sub { $cli->send('from a thread') })->join;
        return ($srv->recv)[1] == $id && $cli->pending == 1;
    },
};

# ---------------------------------------------------------------- each row and its trial

open my $compat, '<', "$root/COMPAT.md" or die $!;
my ($table, %tried);
while (my $line = readline $compat) {
    $table = $1 if $line =~ /^From (.*):$/;
    undef $table if $line =~ /^## [^R]/;
    next if !$table || $line !~ /^\| (?!the original \||---)(.*?) \|/;
    my $row = $1;
    my ($words) = grep { index($row, $_) == 0 } keys %{$trials{$table}};
    if (!$words) { fail("$table: no trial of: $row"); next }
    $tried{$table}{$words}++;
    my $holds = eval { $trials{$table}{$words}->() };
    my $why = $@;
    SKIP: {
        skip "$table: $row", 1 if ($holds // '') eq 'skip';
        ok($holds, "$table: $row") or diag($why);
    }
}
for my $all (sort keys %trials) {
    my @without = grep { !$tried{$all}{$_} } keys %{$trials{$all}};
    is("@without", '', "$all: no trial without a row");
}
done_testing;
