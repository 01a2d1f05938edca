use strict;
use warnings;
use Test::More;
use FindBin ();
use lib "$FindBin::Bin/..";
use Asleep;
use Errno qw(EBADF EAGAIN ENOENT);
use Fcntl qw(:DEFAULT :seek);
use File::Temp qw(tempdir);
use Pipework::FD;

alarm 120;
my $folder = tempdir(CLEANUP => 1);

sub file {
    my ($content) = @_;
    Pipework::FD::sysopen(my $fd, "$folder/file", O_CREAT | O_RDWR | O_TRUNC) // die $!;
    Pipework::FD::syswrite($fd, $content);
    Pipework::FD::sysseek($fd, 0, SEEK_SET);
    return $fd;
}

sub content {
    my ($fd) = @_;
    Pipework::FD::pread($fd, my $bytes, 1 << 20, 0);
    return $bytes;
}

# ---------------------------------------------------------------- sysread

my $fd = file('0123456789' x 10);
is(Pipework::FD::sysread($fd, my $fresh, 4), 4, 'into an undefined variable');
is($fresh, '0123', 'which is set');
my $buffer = 'a longer text than that';
is(Pipework::FD::sysread3($fd, $buffer, 3), 3, 'sysread3');
is($buffer, '456', 'the string is cut');
is(Pipework::FD::sysread4($fd, $buffer, 2, 5), 2, 'sysread4, behind the end');
is($buffer, "456\0\x{0}78", 'padded');
is(Pipework::FD::sysread($fd, $buffer, 2, -1), 2, 'a negative offset counts from the end');
is($buffer, "456\0\x{0}790", 'there');
is(Pipework::FD::sysread($fd, $buffer, 1, 1), 1, 'an offset inside');
is($buffer, '41', 'cuts what was behind');
is(Pipework::FD::sysread($fd, $buffer, 1, undef), 1, 'no offset');
is($buffer, '2', 'is none');
is(Pipework::FD::sysread($fd, $buffer, 0), 0, 'nothing asked');
is($buffer, '', 'nothing there');
for my $call (
    [qr/^Negative length at/,        sub { Pipework::FD::sysread($fd, $buffer, -1) }],
    [qr/^Negative length at/,        sub { Pipework::FD::pread($fd, $buffer, -1, 0) }],
    [qr/^Negative length at/,        sub { Pipework::FD::syswrite($fd, 'text', -1) }],
    [qr/^Offset outside string at/,  sub { Pipework::FD::sysread($fd, $buffer, 1, -5) }],
    [qr/^Offset outside string at/,  sub { Pipework::FD::syswrite($fd, 'text', 1, -5) }],
    [qr/^Wide character in syswrite/, sub { Pipework::FD::syswrite($fd, "\x{263a}") }],
    [qr/^Wide character in pwrite/,  sub { Pipework::FD::pwrite($fd, "\x{263a}", 1, 0) }],
    [qr/^Wide character in sysread/,
        sub { Pipework::FD::sysread($fd, my $wide = "\x{263a}", 1, 1) }],
) {
    ok(!eval { $call->[1]->(); 1 }, 'dies');
    like($@, $call->[0], 'in these words');
}
is(Pipework::FD::sysseek($fd, 0, SEEK_CUR), 13, 'and nothing was read');
Pipework::FD::sysseek($fd, 0, SEEK_END);
$buffer = 'kept until here';
is(Pipework::FD::sysread($fd, $buffer, 10, 4), 0, 'the end of file is 0');
is($buffer, 'kept', 'and the buffer is cut at the offset');
is(Pipework::FD::sysread($fd, $buffer, 10), 0, 'without one');
is($buffer, '', 'it is empty');
Pipework::FD::close($fd);
$buffer = 'still here';
is(Pipework::FD::sysread($fd, $buffer, 100), undef, 'a failure');
is($! + 0, EBADF, 'with this');
is($buffer, 'still here', 'and nothing has changed');
my $smile = "\x{263a}";
is(Pipework::FD::sysread($fd, $smile, 100), undef, 'of characters');
is($smile, "\x{263a}", 'nothing either');

# Kinds of buffers.
$fd = file('0123456789');
my $flagged = "\x{e9}";
utf8::upgrade($flagged);
is(Pipework::FD::sysread($fd, $flagged, 1, 1), 1, 'behind a flagged string');
is($flagged, "\x{e9}0", 'it is bytes');
ok(!utf8::is_utf8($flagged), 'without the flag');
utf8::upgrade($flagged);
is(Pipework::FD::sysread($fd, $flagged, 1, -1), 1, 'counted in characters');
is($flagged, "\x{e9}1", 'from the end');
my $number = 12.5;
is(Pipework::FD::sysread($fd, $number, 1, 2), 1, 'a number');
is($number, '122', 'is made a string');
my ($copy, $shared) = ('x' x 5000) x 2;
$copy = $shared;
is(Pipework::FD::sysread($fd, $copy, 1), 1, 'a string that is shared');
is($copy, '3', 'is read into');
is($shared, 'x' x 5000, 'and its other owner keeps its own');
my %hash;
is(Pipework::FD::sysread($fd, $hash{element}, 1), 1, 'an element that is not there');
is($hash{element}, '4', 'is made');
{
    package Tied;
    our (@fetched, @stored);
    sub TIESCALAR { return bless {}, $_[0] }
    sub FETCH     { push @fetched, 1; $_[0]{value} }
    sub STORE     { push @stored, $_[1]; $_[0]{value} = $_[1] }
}
tie my $tied, 'Tied';
is(Pipework::FD::sysread($fd, $tied, 1), 1, 'a tied variable');
is_deeply(\@Tied::stored, ['5'], 'is stored to, once');
$tied = 2;
@Tied::fetched = ();
is(Pipework::FD::sysread($fd, $buffer, $tied), 2, 'a tied length');
is(@Tied::fetched, 1, 'is fetched once');
is($buffer, '67', 'and used');
# Perl code that an argument runs takes the buffer out of its hash.
{
    package Nasty;
    use overload '""' => sub { %{ $_[0]{hash} } = (); 1 }, '0+' => sub { %{ $_[0]{hash} } = (); 1 },
        fallback => 1;
}
%hash = (buffer => 'text', data => 'data' x 1000);
is(Pipework::FD::sysread($fd, $hash{buffer}, bless { hash => \%hash }, 'Nasty'), 1,
    'a buffer that goes away');
%hash = (data => 'data' x 1000);
is(Pipework::FD::syswrite($fd, $hash{data}, bless { hash => \%hash }, 'Nasty'), 1,
    'data that goes away');
Pipework::FD::close($fd);

# Functions whose names have a number take so many arguments.
for my $call (
    ['fd, buffer, len', sub { Pipework::FD::sysread3(0, $buffer, 1, 0) }],
    ['fd, buffer, len, offset', sub { Pipework::FD::sysread4(0, $buffer, 1) }],
    ['fd, data', sub { Pipework::FD::syswrite2(1, 'x', 1) }],
    ['fd, data, len', sub { Pipework::FD::syswrite3(1, 'x', 1, 0) }],
    ['fd, data, len, offset', sub { Pipework::FD::syswrite4(1, 'x', 1) }],
    ['fd, path, flags, mode', sub { Pipework::FD::sysopen4(my $new, '/dev/null', 0) }],
) {
    my ($usage, $code) = @$call;
    ok(!eval { $code->(); 1 }, 'the wrong number of arguments');
    like($@, qr/^Usage: Pipework::FD::\w+\d\($usage\) at \Q$0/, $usage);
}

# ---------------------------------------------------------------- syswrite

$fd = file('');
is(Pipework::FD::syswrite($fd, 'all of it'), 9, 'without a length');
is(Pipework::FD::syswrite($fd, 'part', 2), 2, 'with one');
is(Pipework::FD::syswrite($fd, 'part', 2, 1), 2, 'and an offset');
is(Pipework::FD::syswrite($fd, 'part', undef, 1), 3, 'undef is all');
is(Pipework::FD::syswrite($fd, 'part', 100, 3), 1, 'a length that is too large');
is(Pipework::FD::syswrite($fd, 'part', 1, 100), 0, 'an offset that is too large');
is(Pipework::FD::syswrite($fd, 'part', 9, -2), 2, 'a negative offset');
is(Pipework::FD::syswrite($fd, 12.5), 4, 'a number');
is(Pipework::FD::syswrite2($fd, '2'), 1, 'syswrite2');
is(Pipework::FD::syswrite3($fd, '333', 3), 3, 'syswrite3');
is(Pipework::FD::syswrite4($fd, '44444', 4, 1), 4, 'syswrite4');
is(Pipework::FD::syswrite($fd, ''), 0, 'nothing');
my $latin = "\x{e9}";
utf8::upgrade($latin);
is(Pipework::FD::syswrite($fd, $latin), 1, 'a flagged string');
ok(utf8::is_utf8($latin), 'keeps its flag');
is(content($fd), "all of itpaararttrt12.523334444\x{e9}", 'all of that');
for my $call (
    [syswrite => sub { Pipework::FD::syswrite($fd, undef) }],
    [syswrite => sub { Pipework::FD::syswrite2($fd, undef) }],
    [syswrite => sub { Pipework::FD::syswrite3($fd, undef, 3) }],
    [syswrite => sub { Pipework::FD::syswrite4($fd, undef, 3, 0) }],
    [pwrite   => sub { Pipework::FD::pwrite($fd, undef, 3, 0) }],
) {
    my ($name, $sub) = @$call;
    my @warnings;
    local $SIG{__WARN__} = sub { push @warnings, $_[0] };
    is($sub->(), 0, 'undef is 0 bytes');
    is(@warnings, 1, 'and one warning');
    like($warnings[0], qr/^Pipework::FD::$name called with use of uninitialized value at/,
        'like this');
}
Pipework::FD::close($fd);
is(Pipework::FD::syswrite($fd, 'text'), undef, 'a closed descriptor');
is($! + 0, EBADF, 'EBADF');

# ---------------------------------------------------------------- pread, pwrite

$fd = file('0123456789');
is(Pipework::FD::pread($fd, my $at, 3, 4), 3, 'pread');
is($at, '456', 'there');
is(Pipework::FD::pread($fd, $at, 3, 9), 1, 'at the end');
is(Pipework::FD::pread($fd, $at, 3, 10), 0, 'behind it');
is($at, '', 'nothing');
is(Pipework::FD::pread($fd, $at, 3, -1), undef, 'before the beginning');
is(Pipework::FD::pwrite($fd, 'abcd', 2, 3), 2, 'pwrite');
is(Pipework::FD::pwrite($fd, 'abcd', 100, 8), 4, 'with a length that is too large');
is(Pipework::FD::pwrite($fd, 'x', undef, 0), 1, 'and without');
is(content($fd), 'x12ab567abcd', 'all of that');
is(Pipework::FD::sysseek($fd, 0, SEEK_CUR), 0, 'and the position is where it was');
is(Pipework::FD::pwrite($fd, '!', 1, 5_000_000_000), 1, 'beyond 4 GiB');
is(Pipework::FD::sysseek($fd, 5_000_000_000, SEEK_SET), 5_000_000_000, 'sysseek too');
is(Pipework::FD::sysread($fd, $at, 10), 1, 'there it is');
is(Pipework::FD::sysseek($fd, -1, SEEK_SET), undef, 'before the beginning');
Pipework::FD::close($fd);

# A success leaves $! alone; the number comes back as one that can be kept.
$! = ENOENT;
Pipework::FD::pipe(my $r, my $w);
my @kept = map { Pipework::FD::syswrite($w, 'x' x $_) } 1 .. 3;
is_deeply(\@kept, [1, 2, 3], 'results are not each other');
is($! + 0, ENOENT, '$! is left alone');
Pipework::FD::fcntl($r, F_SETFL, O_NONBLOCK);
Pipework::FD::sysread($r, $buffer, 100);
is(Pipework::FD::sysread($r, $buffer, 100), undef, 'nothing there');
is($! + 0, EAGAIN, 'EAGAIN');

# A signal ends a read, as it ends that of Perl itself.
Pipework::FD::fcntl($r, F_SETFL, 0);
{
    my $seen = 0;
    local $SIG{USR1} = sub { $seen++ };
    my $child = fork // die $!;
    if (!$child) {
        until_asleep;
        kill USR1 => getppid;
        require POSIX;
        POSIX::_exit(0);
    }
    is(Pipework::FD::sysread($r, $buffer, 100), undef, 'a signal');
    ok($!{EINTR}, 'EINTR');
    is($seen, 1, 'and the handler ran');
    waitpid $child, 0;
    local $SIG{USR1} = sub { die "enough\n" };
    $child = fork // die $!;
    if (!$child) {
        until_asleep;
        kill USR1 => getppid;
        require POSIX;
        POSIX::_exit(0);
    }
    ok(!eval { Pipework::FD::sysread($r, $buffer, 100); 1 }, 'a handler that dies');
    is($@, "enough\n", 'dies out of it');
    waitpid $child, 0;
}

my $string = Pipework::FD::SV(4096);
is($string, '', 'SV: an empty string');
is(length Pipework::FD::SV(0), 0, 'of any size');
$string .= 'text';
is($string, 'text', 'to be filled');
done_testing;
