use strict;
use warnings;
use Test::More;
use Errno qw(EBADF EPIPE ETIMEDOUT ECANCELED ESPIPE EINVAL);
use File::Temp qw(tempfile);
use FindBin ();
use lib "$FindBin::Bin/..";
use Leaks;
use Pipework::Pipe;

alarm 120;

# A reader of so many bytes that has ended.
sub reader {
    my ($r, $w) = Pipework::Pipe->pair(capacity => 1 << 20);
    print {$w} $_[0] or die $!;
    close $w or die $!;
    return $r;
}

my ($r, $w) = Pipework::Pipe->pair;
isa_ok($_, 'Pipework::Pipe') for $r, $w;
isa_ok($_, 'IO::Handle') for $r, $w;
is($r->capacity, 65536, 'the usual capacity');
is((Pipework::Pipe->pair(capacity => 100))[0]->capacity, 100, 'another');
for my $bad (0, -1) {
    ok(!eval { Pipework::Pipe->pair(capacity => $bad); 1 }, "a capacity of $bad");
    like($@, qr/^Pipework::Pipe: a pipe holds at least one byte at/, 'is none');
}
{
    package Sub;
    our @ISA = 'Pipework::Pipe';
    main::isa_ok($_, 'Sub') for Sub->pair, (Sub->pair)[0]->pair;
}

# ---------------------------------------------------------------- writing

ok(print({$w} 'printed'), 'print');
{
    local ($,, $\) = (',', "!\n");
    ok(print({$w} 1, 2), 'with its separators');
}
ok(printf({$w} '%03d', 7), 'printf');
{
    use feature 'say';
    ok(say({$w} 'said'), 'say');
}
is(syswrite($w, 'written'), 7, 'syswrite');
is(syswrite($w, 'written', 3), 3, 'a length');
is(syswrite($w, 'written', 3, 2), 3, 'an offset');
ok($w->print('a method'), 'print as a method');
is($w->syswrite('too'), 3, 'and syswrite');
is($w->send('sent'), 4, 'send');
for my $call (sub { syswrite $w, 'x', -1 }, sub { syswrite $w, 'x', 1, 2 },
    sub { syswrite $w, 'x', 1, -2 }) {
    ok(!eval { $call->(); 1 }, 'outside the string');
    like($@, qr/^(?:Negative length|Offset outside string) at \S+ends\.t/, 'dies');
}
$w->autoflush(1);
ok($w->flush, 'flush');
is($w->send(''), 0, 'nothing');
my $text = "printed1,2!\n007said\nwrittenwriitta methodtoosent";
is($r->buffered, length $text, 'that much is in the pipe');
is($w->buffered, length $text, 'as its writer says');
is($r->recv, $text, 'recv: what is there');
my $latin = "\x{e9}";
utf8::upgrade($latin);
print {$w} $latin;
is($r->recv, "\x{e9}", 'bytes');
ok(!eval { print {$w} "\x{263a}"; 1 }, 'a wide character');
like($@, qr/^Wide character in send at/, 'dies');

# ---------------------------------------------------------------- reading

$w->send('0123456789');
is($r->recv(max => 4), '0123', 'recv');
is(sysread($r, my $buffer, 2), 2, 'sysread');
is($buffer, '45', 'into a fresh variable');
is(sysread($r, $buffer, 1, 4), 1, 'with an offset');
is($buffer, "45\0\0006", 'padded');
is(getc $r, '7', 'getc');
is($r->getc, '8', 'as a method');
ok(!eof $r, 'eof: there is more');
is(read($r, $buffer, 100), 1, 'read');
is($buffer, '9', 'what is there');
is($r->recv(max => 1, timeout => 0), undef, 'nothing now');
is($! + 0, ETIMEDOUT, 'ETIMEDOUT');
is($r->recv(max => 1, timeout => 0.1), undef, 'nor after a while');
ok(!$r->is_closed, 'the writer is there');
$w->send('end');
ok(close $w, 'close');
ok($r->is_closed, 'closed');
ok(!eof $r, 'but there is more');
is($r->read($buffer, 2), 2, 'read as a method');
is($r->read($buffer, 2), 1, 'waits for all');
is($r->read($buffer, 2), 0, 'until the end');
is($buffer, '', 'which leaves nothing');
ok(eof $r, 'eof');
ok($r->eof, 'as a method');
is($r->recv, '', 'recv at the end');
is(getc $r, undef, 'getc at the end');
is(<$r>, undef, 'a line at the end');
ok(close $r, 'close the reader');
for my $call (
    [undef => sub { $r->recv }], [undef => sub { sysread $r, $buffer, 1 }],
    [undef => sub { scalar <$r> }],
    ['' => sub { close $r }], ['' => sub { $r->close }], [undef => sub { $r->buffered }],
    ['' => sub { print {$w} 'x' }], [undef => sub { $w->send('x') }],
    [undef => sub { syswrite $w, 'x' }],
    [undef => sub { $w->copy_from_fd(0) }], ['' => sub { $w->close_with_error('x') }],
) {
    my ($is, $sub) = @$call;
    $! = 0;
    is($sub->(), $is eq 'undef' ? undef : $is, 'of a closed end');
    is($! + 0, EBADF, 'EBADF');
}
ok(eof $r, 'eof of a closed end');
ok(!$r->opened, 'opened');

# ---------------------------------------------------------------- lines

sub lines_of {
    my ($content) = @_;
    my $r = reader($content);
    my @one_by_one;
    while (defined(my $line = <$r>)) { push @one_by_one, $line }
    my @all = reader($content)->getlines;
    my $other = reader($content);
    my @list = <$other>;
    is_deeply(\@all, \@one_by_one, 'getlines');
    is_deeply(\@list, \@one_by_one, 'list context');
    open my $file, '<', \$content or die $!;
    is_deeply(\@one_by_one, [<$file>], 'as a file has them');
    return;
}
my @contents = (
    '', "\n", "one\n", "one\ntwo\nthree", "\n\n\none\ntwo\n\n\n\nthree\n\n", "a--b---c----d--",
    join('', map { 'x' x ($_ * 1000) . "\n" } 1 .. 30), "one\n\ntwo\n",
);
for my $separator ("\n", '', undef, '--', '---', "x\n", \3, \1000) {
    local $/ = $separator;
    lines_of($_) for @contents;
}
{
    local $/ = "\n";
    my $r = reader("a line\nand bytes");
    is($r->getline, "a line\n", 'getline');
    is($r->recv, 'and bytes', 'what a line leaves is there');
    is(<$r>, undef, 'the end');
}

# ---------------------------------------------------------------- errors

($r, $w) = Pipework::Pipe->pair;
$w->send('half');
is($r->error, undef, 'nothing is wrong');
ok($w->close_with_error("disk full \x{263a}"), 'close_with_error');
is($r->recv, 'half', 'what came before');
is($r->error, "disk full \x{263a}", 'why');
is($r->recv, undef, 'and then it fails');
is($! + 0, ECANCELED, 'ECANCELED');
is(Pipework::reason(), "disk full \x{263a}", 'Pipework::reason');
like(Pipework::error(), qr/: disk full \x{263a}$/, 'and Pipework::error say why, too');
is(<$r>, undef, 'a line too');
ok(eof $r, 'eof');
ok(!close $r, 'and so does close');
is($! + 0, ECANCELED, 'with the same');
($r, $w) = Pipework::Pipe->pair;
$r->close_with_error('enough');
is($w->send('x'), undef, 'the writer fails, too');
is($w->error, 'enough', 'it says why');
ok(!print({$w} 'x'), 'print');
ok(!close $w, 'close');
($r, $w) = Pipework::Pipe->pair;
$w->send('x');
close $r;
{
    local $SIG{PIPE} = sub { fail('SIGPIPE') };
    ok(!print({$w} 'x'), 'print without a reader fails');
    is($! + 0, EPIPE, 'EPIPE');
    ok($w->is_closed, 'is_closed');
    ok(!close $w, 'not all of it was read');
}
($r, $w) = Pipework::Pipe->pair(capacity => 16);
is($w->send('x' x 100, 0.1), undef, 'send of more than fits, in time');
is($Pipework::Pipe::done, 16, 'so much is in');
undef $w;
is($r->recv, 'x' x 16, 'and comes out');
is($r->recv, '', 'a writer that is gone has ended');

# The wrong end, no end.
($r, $w) = Pipework::Pipe->pair;
for my $call (sub { $w->recv }, sub { <$w> }, sub { $w->copy_to_fd(1) }, sub { eof $w }) {
    ok(!eval { $call->(); 1 }, 'the wrong end');
    like($@, qr/^This is the writing end of the pipe at/, 'the words');
}
for my $call (sub { $r->send('x') }, sub { print {$r} 'x' }, sub { $r->copy_from_fd(0) }) {
    ok(!eval { $call->(); 1 }, 'the wrong end');
    like($@, qr/^This is the reading end of the pipe at/, 'the words');
}
for my $none (\1, [], 'x', Symbol::gensym()) {
    ok(!eval { Pipework::Pipe::recv($none); 1 }, 'no end');
    like($@, qr/^Expected a Pipework::Pipe object at/, 'the words');
}
ok(!eval { $r->sysread('constant', 1); 1 }, 'a read-only buffer');
ok(!eval { $r->read($buffer, -1); 1 }, 'a negative length');
is(fileno $r, undef, 'there is no fileno');
is($r->fileno, undef, 'as a method');
ok(binmode($r), 'binmode');
ok(!binmode($r, ':utf8'), 'but with layers');
ok(!seek($r, 0, 0), 'seek');
is(tell $r, -1, 'tell');

# ---------------------------------------------------------------- copies

{
    my ($out, $name) = tempfile(UNLINK => 1);
    $w->send("line\nthe rest");
    is(<$r>, "line\n", 'a line');
    is($r->copy_to_fd(fileno $out, length => 4), 4, 'copy_to_fd, behind the line');
    close $w;
    is($r->copy_to_fd($out), 4, 'to a handle, up to the end');
    open my $in, '<', $name or die $!;
    ($r, $w) = Pipework::Pipe->pair;
    is($w->copy_from_fd($in), 8, 'copy_from_fd');
    is($r->recv, 'the rest', 'all of it');
    ok(!eval { $w->copy_from_fd('x'); 1 }, 'no descriptor');
    is($w->copy_from_fd(12345), undef, 'a closed one');
    is($! + 0, EBADF, 'EBADF');
}

leaves_nothing('pipes that are gone', 500, sub {
    my ($r, $w) = Pipework::Pipe->pair;
    print {$w} "a line\nhalf";
    my $line = <$r>;
});
# ---------------------------------------------------------------- hostile arguments

# A tied value that runs code when it is fetched.
{
    package Emptying;
    sub TIESCALAR { my ($class, $value, $do) = @_; return bless [$value, $do], $class }
    sub FETCH     { $_[0][1]->(); return $_[0][0] }
}
{
    my ($r, $w) = Pipework::Pipe->pair;
    my @held = (join '', 'some', ' data');
    my @others;
    tie my $seconds, 'Emptying', 1, sub { @held = (); @others = map { "another $_" } 1 .. 10 };
    is($w->send($held[0], $seconds), 9, 'the bytes are gone meanwhile');
    is($r->recv(max => 100), 'some data', 'they were sent');
    my $file = tempfile();
    $w->send('some data');
    @held = (4 + @ARGV);
    tie my $fd, 'Emptying', fileno $file, sub { @held = (); push @others, -$_ for 1 .. 10 };
    my $count = $r->copy_to_fd($fd, length => $held[0], timeout => 0);
    is($count, 4, 'so is a length');
    is($r->recv(max => 100), ' data', 'which counts');
    @held = (join '', 'a', ' buffer');
    my $buffer = \$held[0];
    $w->send('here');
    tie my $len, 'Emptying', 4, sub { @held = (); @others = map { "another $_" } 1 .. 10 };
    is($r->read($held[0], $len), 4, 'a buffer');
    is($$buffer, 'here', 'which is filled');
    @held = ($w);
    undef $w;
    ok(!eval { $held[0]->send('x', $seconds); 1 }, 'and the end itself');
    like($@, qr/^Attempted to use a destroyed Pipework::Pipe object/, 'says so');
}
{
    my ($r, $w) = Pipework::Pipe->pair;
    my @warnings;
    local $SIG{__WARN__} = sub { push @warnings, @_ };
    is(syswrite($w, undef), 0, 'undef');
    is(@warnings, 1, 'is warned of once');
    is(syswrite($w, undef, 1), 0, 'with a length');
    is(@warnings, 2, 'as well');
    like($warnings[1], qr/^Use of uninitialized value in syswrite at \S+ends\.t/, 'where it was');
    is(syswrite($w, 'text', $_), 4, "a length of $_") for 2**63, ~0, 1e30;
    close $w;
    is($r->read(my $bytes, $_), $_ == 2**63 ? 12 : 0, 'to read as well') for 2**63, ~0, 1e30;
    ok(!eval { Pipework::Pipe->pair(capacity => $_); 1 }, 'a capacity') for 2**63, ~0, 1e30;
    isa_ok($@, 'Pipework::Error', 'the failure');
    ok(!eval { $r->read($bytes, 1, 2**62); 1 }, 'an offset');
    like($@, qr/^Out of memory for \d+ bytes at/, 'that is too large');
    ($r, $w) = Pipework::Pipe->pair;
    print {$w} 'text';
    is($r->recv(max => $_, timeout => 0) // 'undef', $_ == 2**63 ? 'text' : 'undef', 'recv') for 2**63, 1e30;
    for my $bad ('0 but true', 'NaN' + 0, !1, 1.5) {
        ok(!eval { $r->copy_to_fd($bad, length => 1, timeout => 0); 1 }, "'$bad'");
        like($@, qr/^Neither a descriptor nor a handle at/, 'is no descriptor');
    }
    my $wide = "\x{263a}";
    is($r->sysread($wide, 0), 0, 'over characters');
    is($wide, '', 'which go away');
    $wide = "\x{e9}\x{263a}";
    close $r;
    is(sysread($r, $wide, 1), undef, 'of a closed end');
    is($wide, "\x{e9}\x{263a}", 'they stay');
}

done_testing;
