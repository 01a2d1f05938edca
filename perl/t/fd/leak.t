# Many of each operation, those that fail and those that die among them: no memory and no descriptor
# is left. PIPEWORK_OPERATIONS=100000 is how many.
use strict;
use warnings;
use Errno ();
use Fcntl;
use File::Temp qw(tempdir);
use FindBin ();
use lib "$FindBin::Bin/..";
use Leaks;
use Socket qw(:DEFAULT SOCK_NONBLOCK);
use Test::More;
use Pipework::FD;
use Pipework::FD::Constants;
use Pipework::Pipe;

alarm 120;
my $count  = $ENV{PIPEWORK_OPERATIONS} // 3000;
my $folder = tempdir(CLEANUP => 1);
local $SIG{__WARN__} = sub { };
local $SIG{PIPE} = 'IGNORE';

Pipework::FD::sysopen(my $file, "$folder/file", O_CREAT | O_RDWR);
Pipework::FD::pwrite($file, 'x' x 10_000, 10_000, 0);
Pipework::FD::socketpair(my $one, my $other, AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
Pipework::FD::socketpair(my $from, my $to, AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
Pipework::FD::socket(my $listener, AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
Pipework::FD::bind($listener, pack_sockaddr_un("$folder/socket"));
Pipework::FD::listen($listener, 100);
my $null  = Pipework::FD::open('/dev/null', O_RDWR);
my $inbox = Pipework::FD::Inbox->new(4, 100);

sub client {
    Pipework::FD::socket(my $fd, AF_UNIX, SOCK_STREAM, 0);
    Pipework::FD::connect($fd, pack_sockaddr_un("$folder/socket"));
    return $fd;
}
{
    package Text;
    use overload '""' => sub { 'y' x 2000 }, fallback => 1;
}
my $object = bless [], 'Text';
my $wide   = "\x{e9}" x 2000;
utf8::upgrade($wide);
my %operations = (
    socket => sub {
        Pipework::FD::socket(my $fd, AF_UNIX, SOCK_STREAM, 0);
        Pipework::FD::close($fd);
    },
    open    => sub { Pipework::FD::close(Pipework::FD::open("$folder/file", O_RDONLY)) },
    pipe    => sub { Pipework::FD::pipe(my $r, my $w); Pipework::FD::close($_) for $r, $w },
    mkstemp => sub {
        my ($fd, $path) = Pipework::FD::mkstemp("$folder/XXXXXX");
        Pipework::FD::close($fd);
        unlink $path;
    },
    accept => sub {
        my $client = client();
        my $peer   = Pipework::FD::accept(my $new, $listener);
        Pipework::FD::close($_) for $client, $new;
    },
    accept_multiple => sub {
        my @clients = (client(), client());
        Pipework::FD::accept_multiple(my @new, my @peers, $listener);
        Pipework::FD::close($_) for @clients, @new;
    },
    accept_many => sub {
        my $client = client();
        my ($why, $new, $peers) = Pipework::FD::accept_many($listener, 10);
        Pipework::FD::close($_) for $client, @$new;
    },
    sysread  => sub { Pipework::FD::pread($file, my $buffer, 10_000, 0) },
    syswrite => sub { Pipework::FD::syswrite($null, $_) for 'x' x 5000, $object, $wide, undef },
    stat     => sub { my @of = (Pipework::FD::stat($file), Pipework::FD::lstat("$folder/none")) },
    options  => sub {
        my $value = Pipework::FD::getsockopt($one, SOL_SOCKET, SO_SNDBUF);
        Pipework::FD::setsockopt($one, SOL_SOCKET, SO_KEEPALIVE, $_) for undef, '1', pack('i', 1);
        my $name = Pipework::FD::getsockname($listener);
    },
    send => sub {
        Pipework::FD::send($one, 'x' x 1000, 0);
        Pipework::FD::recv($other, my $buffer, 2000, 0);
    },
    datagrams => sub {
        Pipework::FD::send_many($from, ['x' x 100, ['y']], 0);
        $inbox->recv($to, 0);
        my @got = $inbox->get(0);
    },
    poll     => sub { Pipework::FD::poll(my $list = pack(POLLFD_PACKER, $one, POLLIN, 0), 0) },
    readline => sub {
        Pipework::FD::sysseek($file, 0, 0);
        local $/;
        my $all = Pipework::FD::readline($file);
        Pipework::FD::sysseek($file, 0, 0);
        local $/ = \1000;
        my @records = Pipework::FD::readline($file);
    },
    slurp => sub {
        Pipework::FD::sysseek($file, 0, 0);
        my $part = Pipework::FD::slurp($file, 100);
        Pipework::FD::read_full($one, my $none, 10, 0);
    },
    fcntl => sub {
        Pipework::FD::fcntl($file, F_GETLK, my $lock = pack 's s x4 q q i x4', (0) x 5);
    },
    refusals => sub {
        Pipework::FD::sysread('x', my $buffer, 1);
        Pipework::FD::close(-1);
        for my $dies (
            sub { Pipework::FD::sysread(0, 'constant', 1) },
            sub { Pipework::FD::sysread(0, my $none, -1) },
            sub { Pipework::FD::syswrite($null, "\x{263a}" x 1000) },
            sub { Pipework::FD::mkstemp("$folder/none/XXXXXX") },
            sub { local $/ = "\n"; Pipework::FD::readline($file) },
        ) {
            eval { $dies->() };
        }
    },
    reserve => sub { Pipework::FD::Reserve->new->shed($listener, 1) },
    inbox   => sub { Pipework::FD::Inbox->new(4, 1000) },
    'a pipe' => sub {
        my ($r, $w) = Pipework::Pipe->pair(capacity => 1000);
        print {$w} "line\n" x 10, 'rest';
        my $line = readline $r;
        sysread $r, my $buffer, 7;
        $w->close_with_error('enough');
        my $why = $r->error;
        my @lines = readline $r;
    },
    'a pipe that fails' => sub {
        my ($r, $w) = Pipework::Pipe->pair(capacity => 16);
        $w->send('x' x 100, 0);
        eval { $w->recv };
        eval { $r->recv(max => 0) };
        close $r;
        print {$w} 'x';
    },
);
leaves_nothing($_, $count, $operations{$_}) for sort keys %operations;
done_testing;
