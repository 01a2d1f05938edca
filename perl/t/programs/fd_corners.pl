# Files, fifos and flags: details of the manual in one place.
use strict;
use warnings;
use Fcntl qw(:DEFAULT :seek);
use File::Temp qw(tempdir);
use IO::FD;
use Socket;

alarm 10;
my $folder = tempdir(CLEANUP => 1);

# Temporary names: the template becomes the name.
my $template = "$folder/aXXXXXX";
my ($fd, $path) = IO::FD::mkstemp($template);
die "mkstemp: $!" if !defined $fd;
die "the template is $template, the path $path\n"
    if $template ne $path || $path =~ /XXXXXX/ || !-e $path;
my $unused = "$folder/bXXXXXXXX";
my $returned = IO::FD::mktemp($unused);
die "mktemp\n" if $returned ne $unused || -e $unused || $unused =~ /XXXXXX/;

# pread and pwrite do not move the position.
defined IO::FD::syswrite($fd, '0123456789') or die "write: $!";
my $wrote = IO::FD::pwrite($fd, 'abc', 3, 4);
die "pwrite\n" if !defined $wrote || $wrote != 3;
my $read = IO::FD::pread($fd, my $middle, 5, 3);
die "pread: $middle\n" if $read != 5 || $middle ne '3abc7';
my $position = IO::FD::sysseek($fd, 0, SEEK_CUR);
die "position $position\n" if $position != 10;
my $start = IO::FD::sysseek($fd, 0, SEEK_SET);
die "seek to the start\n" if !defined $start || $start != 0;

# Offsets of sysread and syswrite are as those of Perl.
my $buffer = 'xyz';
$read = IO::FD::sysread($fd, $buffer, 2, 5);
die "padding: $buffer\n" if $read != 2 || $buffer ne "xyz\0\x{0}01";
$read = IO::FD::sysread($fd, $buffer, 2, -1);
die "from the end: $buffer\n" if $buffer ne "xyz\0\x{0}023";
IO::FD::sysseek($fd, 0, SEEK_END);
$wrote = IO::FD::syswrite($fd, 'abcdef', 2, -3);
die "syswrite with an offset\n" if $wrote != 2;

# Slurp and records; the rest is a short record.
IO::FD::sysseek($fd, 0, SEEK_SET);
my @records = do { local $/ = \5; IO::FD::readline($fd) };
die "records: @records\n" if "@records" ne '0123a bc789 de';
IO::FD::sysseek($fd, 0, SEEK_SET);
my $slurp = do { local $/ = undef; IO::FD::readline($fd) };
die "slurp: $slurp\n" if $slurp ne '0123abc789de';

# stat of a descriptor, a path and a link is that of Perl.
symlink $path, "$folder/link" or die "symlink: $!";
die "stat\n" if join(' ', IO::FD::stat($fd)) ne join ' ', CORE::stat($path);
die "stat of a path\n" if join(' ', IO::FD::stat("$folder/link")) ne join ' ', CORE::stat($path);
die "lstat\n" if join(' ', IO::FD::lstat("$folder/link")) ne join ' ', CORE::lstat("$folder/link");
die "stat of nothing\n" if my @nothing = IO::FD::stat("$folder/nothing");

# open and openat, and a fifo.
my $new = IO::FD::open("$folder/new", O_CREAT | O_RDWR, 0600);
die "open: $!" if !defined $new;
die "mode\n" if ((IO::FD::stat($new))[2] & 0777) != 0600;
my $directory = IO::FD::open($folder, O_RDONLY);
my $again = IO::FD::openat($directory, 'new', O_RDONLY);
die "openat: $!" if !defined $again;
die "another file\n" if (IO::FD::stat($again))[1] != (IO::FD::stat($new))[1];
die "mkfifo: $!" if !defined IO::FD::mkfifo("$folder/fifo");
die "mkfifoat: $!" if !defined IO::FD::mkfifoat($directory, 'second', 0600);
die "no fifos\n" if !-p "$folder/fifo" || !-p "$folder/second";
my $mode = (IO::FD::stat("$folder/fifo"))[2] & 0777;
die sprintf "mode of the fifo: %o\n", $mode if $mode != (0666 & ~umask);

# Close-on-exec above $^F, and not below it.
sub cloexec { return IO::FD::fcntl($_[0], F_GETFD, 0) & FD_CLOEXEC }
my @fds = ($fd, $new, $again, IO::FD::dup($fd));
IO::FD::pipe(my $r, my $w) // die "pipe: $!";
IO::FD::socketpair(my $one, my $two, AF_UNIX, SOCK_STREAM, PF_UNSPEC) // die "socketpair: $!";
IO::FD::sysopen(my $file, $path, O_RDONLY) // die "sysopen: $!";
cloexec($_) or die "descriptor $_ would leak\n" for @fds, $r, $w, $one, $two, $file;
{
    local $^F = 1000;
    IO::FD::syspipe(my $in, my $out) // die "pipe: $!";
    cloexec($_) and die "descriptor $_ would be closed\n" for $in, $out;
    my $child = fork // die "fork: $!";
    if (!$child) {
        alarm 10;
        IO::FD::dup2($out, 1) // die "dup2: $!";
        my $code = 'for (@ARGV) { open my $f, ">&=", $_ or next; print {$f} "$_\n" }';
        exec $^X, '-e', $code, 1, $out, $w;
    }
    waitpid $child, 0;
    IO::FD::close($out);
    my $text = do { local $/; IO::FD::readline($in) };
    die "the command wrote: $text\n" if $text ne "1\n$out\n";
}

# Values that are no descriptor and cannot become one.
my @warnings;
local $SIG{__WARN__} = sub { push @warnings, @_ };
die "read of no descriptor\n" if defined IO::FD::sysread('name', my $nothing, 10) || !$!{EBADF};
die "write to no descriptor\n" if defined IO::FD::syswrite('name', 'text') || !$!{EBADF};
die "warnings: @warnings\n"
    if 2 != grep { /^IO::FD::sys\w+ called with something other than a file descriptor/ } @warnings;
die "a constant got a descriptor\n"
    if eval { IO::FD::sysopen($_, $path, O_RDONLY) for 1; 1 } || $@ !~ /read-only/;
die "closed twice\n" if !defined IO::FD::close($r) || defined IO::FD::close($r) || !$!{EBADF};
my $sv = IO::FD::SV(8192);
die "a new string\n" if length $sv;
my $before = IO::FD::clock_gettime_monotonic();
die "time goes back\n" if IO::FD::clock_gettime_monotonic() < $before;
print "done\n";
