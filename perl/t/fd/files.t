use strict;
use warnings;
use Test::More;
use Errno qw(ENOENT EEXIST EBADF);
use Fcntl qw(:DEFAULT :mode);
use File::Temp qw(tempdir);
use Pipework::FD;

alarm 120;
umask 022;
my $folder = tempdir(CLEANUP => 1);

# ---------------------------------------------------------------- sysopen, open, openat

my $fd;
is(Pipework::FD::sysopen($fd, "$folder/file", O_CREAT | O_RDWR), $fd, 'sysopen');
is((CORE::stat "$folder/file")[2] & 0777, 0644, 'with the usual mode');
Pipework::FD::close($fd);
ok(Pipework::FD::sysopen4($fd, "$folder/file4", O_CREAT | O_RDWR, 0600), 'sysopen4');
is((CORE::stat "$folder/file4")[2] & 0777, 0600, 'with a mode');
Pipework::FD::close($fd);
ok($fd = Pipework::FD::open("$folder/opened", O_CREAT | O_WRONLY), 'open');
is((CORE::stat "$folder/opened")[2] & 0777, 0644, 'with the usual mode');
Pipework::FD::close($fd);
ok($fd = Pipework::FD::open("$folder/private", O_CREAT | O_WRONLY, 0640), 'open');
is((CORE::stat "$folder/private")[2] & 0777, 0640, 'with a mode');
Pipework::FD::close($fd);
my $where = Pipework::FD::open($folder, O_RDONLY | O_DIRECTORY);
ok($fd = Pipework::FD::openat($where, 'in', O_CREAT | O_WRONLY), 'openat');
ok(-e "$folder/in", 'in that folder');
Pipework::FD::close($fd);
ok($fd = Pipework::FD::openat(-100, "$folder/in", O_RDONLY), 'AT_FDCWD');
Pipework::FD::close($fd);
my $unset;
is(Pipework::FD::sysopen($unset, "$folder/none", O_RDONLY), undef, 'a file that is not there');
is($! + 0, ENOENT, 'ENOENT');
is($unset, undef, 'and nothing is set');
for my $call (
    sub { Pipework::FD::sysopen($unset, "$folder/file\0x", O_RDONLY) },
    sub { Pipework::FD::open("$folder/file\0x", O_RDONLY) },
    sub { Pipework::FD::openat($where, "file\0x", O_RDONLY) },
    sub { Pipework::FD::mkfifo("$folder/fifo\0x") },
    sub { Pipework::FD::mkfifoat($where, "fifo\0x") },
    sub { scalar Pipework::FD::stat("$folder/file\0x") },
    sub { scalar Pipework::FD::lstat("$folder/file\0x") },
) {
    is($call->(), undef, 'a path with a NUL');
    is($! + 0, ENOENT, 'ENOENT');
}
ok(!-e "$folder/fifo", 'and nothing was made');

# ---------------------------------------------------------------- mkfifo, mkfifoat

is(Pipework::FD::mkfifo("$folder/fifo"), 1, 'mkfifo');
is((CORE::stat "$folder/fifo")[2], S_IFIFO | 0644, 'with the usual mode');
is(Pipework::FD::mkfifo("$folder/fifo"), undef, 'again');
is($! + 0, EEXIST, 'EEXIST');
is(Pipework::FD::mkfifo("$folder/fifo2", 0600), 1, 'with a mode');
is((CORE::stat "$folder/fifo2")[2], S_IFIFO | 0600, 'that one');
is(Pipework::FD::mkfifoat($where, 'fifo3'), 1, 'mkfifoat');
is(Pipework::FD::mkfifoat($where, 'fifo4', 0600), 1, 'with a mode');
is((CORE::stat "$folder/fifo4")[2], S_IFIFO | 0600, 'that one');

# ---------------------------------------------------------------- stat, lstat

symlink 'file', "$folder/link" or die $!;
for (qw(file link fifo)) {
    is_deeply([Pipework::FD::stat("$folder/$_")], [CORE::stat "$folder/$_"], "stat $_");
    is_deeply([Pipework::FD::lstat("$folder/$_")], [CORE::lstat "$folder/$_"], "lstat $_");
}
is_deeply([Pipework::FD::stat(0)], [CORE::stat STDIN], 'stat of a descriptor');
is_deeply([Pipework::FD::lstat(0)], [CORE::stat STDIN], 'lstat of one');
{
    chdir $folder or die $!;
    CORE::open my $out, '>', '0' or die $!;
    my @file = CORE::stat '0';
    is_deeply([Pipework::FD::stat('0')], \@file, 'a string is a path');
    chdir '/';
}
is(scalar Pipework::FD::stat("$folder/file"), 1, 'scalar context');
is(scalar Pipework::FD::stat("$folder/none"), undef, 'fails');
is($! + 0, ENOENT, 'ENOENT');
is_deeply([Pipework::FD::stat("$folder/none")], [], 'in list context nothing comes back');
is_deeply([Pipework::FD::lstat(12345)], [], 'nor of a closed descriptor');
is($! + 0, EBADF, 'EBADF');
Pipework::FD::stat("$folder/file");
pass('void context');

# ---------------------------------------------------------------- mkstemp, mktemp

my $template = "$folder/in_listXXXXXX";
my ($made, $path) = Pipework::FD::mkstemp($template);
like($path, qr{^\Q$folder\E/in_list[A-Za-z0-9]{6}$}, 'mkstemp in list context');
is($template, $path, 'the template is changed');
is((CORE::stat $path)[2] & 0777, 0600, 'the file is ours alone');
is_deeply([Pipework::FD::stat($made)], [CORE::stat $path], 'and open');
is(Pipework::FD::syswrite($made, 'text'), 4, 'for writing');
Pipework::FD::close($made);
my $scalar = Pipework::FD::mkstemp($template = "$folder/in_scalarXXXXXXXXX");
like($scalar, qr/^\d+$/, 'in scalar context the descriptor');
is_deeply([Pipework::FD::stat($scalar)], [CORE::stat $template],
    'of the file that the template names');
Pipework::FD::close($scalar);
chdir $folder or die $!;
my $literal = Pipework::FD::mkstemp('literalXXXXXX');
like($literal, qr/^\d+$/, 'a literal');
Pipework::FD::close($literal);
like(Pipework::FD::mktemp('literalXXXXXX'), qr/^literal[A-Za-z0-9]{6}$/, 'mktemp of a literal');
chdir '/';
my $name = Pipework::FD::mktemp($template = "$folder/nameXXXXXX");
is($name, $template, 'mktemp changes the template');
unlike($name, qr/XXXXXX$/, 'mktemp replaces the X');
ok(!-e $name, 'and makes nothing');
for my $function (\&Pipework::FD::mkstemp, \&Pipework::FD::mktemp) {
    for my $bad ("$folder/XXXXX", 'XXX', '', "$folder/XXXXXXx", undef) {
        no warnings 'uninitialized';
        my $unchanged = $bad;
        ok(!eval { $function->($unchanged); 1 }, 'a template that is none');
        like($@, qr/^The template must end with at least 6 'X' characters at/, 'says so');
        is($unchanged, $bad, 'and is left alone');
    }
    ok(!eval { $function->("$folder/a\0XXXXXX"); 1 }, 'a NUL');
    like($@, qr/^Error creating temp file/, 'is no name');
}
my $nowhere = "$folder/none/XXXXXX";
ok(!eval { Pipework::FD::mkstemp($nowhere); 1 }, 'a folder that is not there');
like($@, qr{^Error creating temp file \Q$nowhere\E: No such file or directory at}, 'says so');
is($! + 0, ENOENT, 'ENOENT');
Pipework::FD::close($where);
done_testing;
