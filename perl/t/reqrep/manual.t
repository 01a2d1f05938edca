# The manual of Data::ReqRep::Shared, line by line.
use strict;
use warnings;
use Test::More;
use File::Temp qw(tempdir tempfile);
use POSIX ();
use Pipework::ReqRep;

alarm 120;
my $folder = tempdir(CLEANUP => 1);
my $number = 0;
sub path { "$folder/rr" . $number++ }

my @classes = map { ($_, "${_}::Client") } 'Pipework::ReqRep', 'Pipework::ReqRep::Int';

# ---------------------------------------------------------------- synopsis
{
    my $path = path();
    my $srv  = Pipework::ReqRep->new($path, 1024, 64, 4096);
    isa_ok($srv, 'Pipework::ReqRep');
    defined(my $pid = fork) or die "fork: $!";
    if (!$pid) {
        while (my ($req, $id) = $srv->recv_wait(20)) {
            last if $req eq 'stop';
            $srv->reply($id, uc $req);
        }
        exit 0;
    }
    my $cli = Pipework::ReqRep::Client->new($path);
    isa_ok($cli, 'Pipework::ReqRep::Client');
    is($cli->req('hello'), 'HELLO', 'req');
    is($cli->req_wait('hello', 5.0), 'HELLO', 'req_wait');
    my $id1 = $cli->send('req1');
    my $id2 = $cli->send('req2');
    is($cli->pending, 2, 'pending');
    is($cli->get_wait($id2), 'REQ2', 'get_wait, in any order');
    is($cli->get_wait($id1, 5), 'REQ1', 'get_wait with a time-out');
    is($cli->pending, 0, 'nothing is pending');
    $cli->send('stop');
    waitpid $pid, 0;
    is($?, 0, 'the server has ended');
}

# ---------------------------------------------------------------- constructors
{
    my $path = path();
    my $srv  = Pipework::ReqRep->new($path, 8, 4, 32);
    my $cli  = Pipework::ReqRep::Client->new($path);
    for my $end ($srv, $cli) {
        is($end->path, $path, 'path');
        is($end->resp_slots, 4,  'resp_slots');
        is($end->resp_size,  32, 'resp_size');
        is($end->capacity,   8,  'capacity');
        is($end->size,       0,  'size');
        is($end->is_empty,   1,  'is_empty');
        is($end->memfd,      -1, 'a segment with a path has no memfd');
    }
    is(Pipework::ReqRep->new(path(), 3, 4, 32)->capacity, 8,
        'capacity is a power of two, and twice the slots');
    is(Pipework::ReqRep->new(path(), 100, 4, 32)->capacity, 128, 'or more');
    my $again = Pipework::ReqRep->new($path, 1024, 99, 9999);
    is($again->resp_slots, 4, 'an existing segment is opened with any sizes');
    my $id = $cli->send('x');
    is(scalar $again->recv, $id, 'and it is the same');
    my $mode = path();
    Pipework::ReqRep->new($mode, 8, 4, 32, 4096, 0640);
    is((stat $mode)[2] & 07777, 0640, 'mode');
    Pipework::ReqRep->new($mode = path(), 8, 4, 32);
    is((stat $mode)[2] & 07777, 0600, 'mode, without one');
    is(Pipework::ReqRep->new(undef, 8, 4, 32)->stats->{arena_cap}, 4096,
        'an arena of at least 4096');
    is(Pipework::ReqRep->new(undef, 64, 4, 32)->stats->{arena_cap}, 64 * 256,
        '256 for each request');
    is(Pipework::ReqRep->new(undef, 64, 4, 32, 5000)->stats->{arena_cap}, 5000, 'or as it is said');
    is(Pipework::ReqRep->new(undef, 64, 4, 0)->resp_size, 0, 'responses without bytes');
}
{   # The file of tempfile(): empty, and one's own.
    my ($file, $path) = tempfile(DIR => $folder);
    dies(sub { Pipework::ReqRep::Client->new($path) }, qr/: \Q$path\E: invalid or incompatible/,
        'a client makes no segment of an empty file');
    my $srv = Pipework::ReqRep->new($path, 8, 4, 32);
    my $id  = Pipework::ReqRep::Client->new($path)->send('x');
    is(scalar $srv->recv, $id, 'a server does');
    ($file, my $int) = tempfile(DIR => $folder);
    is(Pipework::ReqRep::Int->new($int, 8, 4)->resp_slots, 4, 'Int, too');
    my ($full, $other) = tempfile(DIR => $folder);
    print $full 'x';
    close $full;
    dies(sub { Pipework::ReqRep->new($other, 8, 4, 32) }, qr/invalid or incompatible/,
        'not of a file that holds anything');
    is(-s $other, 1, 'which stays as it is');

    # Many at once: they agree.
    ($file, $path) = tempfile(DIR => $folder);
    pipe my $ready, my $go or die $!;
    my @pids = map {
        my $me  = $_;
        my $pid = fork // die $!;
        if (!$pid) {
            close $go;
            sysread $ready, my $nothing, 1;
            my $mine = Pipework::ReqRep->new($path, 64, 16 + $me, 32);
            # Forgotten requests stay when their client has ended.
            my $cli = Pipework::ReqRep::Client->new($path);
            POSIX::_exit($cli->forget($cli->send("of $me")) ? 0 : 1);
        }
        $pid;
    } 1 .. 8;
    close $go;
    my $failed = 0;
    waitpid($_, 0) && ($failed += $? != 0) for @pids;
    is($failed, 0, 'many servers that find it empty at the same time');
    is(Pipework::ReqRep->new($path, 8, 4, 32)->size, 8, 'make one segment');
}
{
    my $srv = Pipework::ReqRep->new(undef, 8, 4, 32);
    is($srv->path, undef, 'anonymous');
    cmp_ok($srv->memfd, '>=', 0, 'its memfd');
    my $cli = Pipework::ReqRep::Client->new_from_fd($srv->memfd);
    is($cli->path, undef, 'a client of it');
    my $sent = $cli->send('a');
    is(scalar $srv->recv, $sent, 'it sends to the same segment');
    my $named = Pipework::ReqRep->new_memfd('rr-name', 8, 4, 32);
    my $other = Pipework::ReqRep->new_from_fd($named->memfd);
    my $id    = Pipework::ReqRep::Client->new_from_fd($named->memfd)->send('through') ;
    is_deeply([$other->recv], ['through', $id], 'new_memfd and new_from_fd');
    ok(-e "/proc/self/fd/" . $named->memfd, 'the descriptor stays open');
}

# ---------------------------------------------------------------- servers
sub ends {
    my $srv = Pipework::ReqRep->new(undef, @_ ? @_ : (8, 4, 32));
    return ($srv, Pipework::ReqRep::Client->new_from_fd($srv->memfd));
}
{
    my ($srv, $cli) = ends();
    is_deeply([$srv->recv], [], 'recv: the empty list');
    is_deeply([$srv->recv_wait(0)], [], 'recv_wait(0)');
    is_deeply([$srv->recv_wait(0.01)], [], 'recv_wait with a time-out');
    ok($!{ETIMEDOUT}, 'says so');
    is(scalar $srv->recv, undef, 'and undef in scalar context');
    my $id = $cli->send('ask');
    like($id, qr/^[1-9]\d*$/, 'send: an id');
    is($srv->size, 1, 'size');
    is($srv->is_empty, '', 'is_empty');
    is_deeply([$srv->recv], ['ask', $id], 'recv: data and the id of send');
    is($cli->get($id), undef, 'get: undef while there is no response');
    is($srv->reply($id, 'answer'), 1, 'reply: true');
    is($srv->reply($id, 'answer'), '', 'false the second time');
    is($cli->get($id), 'answer', 'get');
    is($cli->get($id), undef, 'undef the second time');
    is($srv->reply(999 << 24, 'answer'), '', 'false for an id that there is none of');

    $id = $cli->send('');
    is_deeply([$srv->recv], ['', $id], 'an empty request');
    $srv->reply($id, '');
    is($cli->get($id), '', 'an empty response is not undef');

    $id = $cli->send('ask');
    is(scalar $srv->recv_wait(1), $id, 'in scalar context the id');
    is_deeply([$cli->cancel($id)], [], 'cancel returns nothing');
    is($srv->reply($id, 'late'), '', 'reply is false when it was cancelled');
    is($cli->get($id), undef, 'and there is nothing to get');
    my $next = $cli->send('ask');
    isnt($next, $id, 'another generation');
    is($srv->reply($id, 'late'), '', 'stale ids are rejected: reply');
    is($cli->get($id), undef, 'get');
    $cli->cancel($id);
    is($cli->pending, 1, 'cancel');
    $srv->recv;
    $srv->reply($next, 'there');
    $cli->cancel($next);
    is($cli->get($next), 'there', 'cancel does nothing once the response is there');
}
{
    my ($srv, $cli) = ends();
    my @ids = map { $cli->send("r$_") } 1 .. 4;
    is($cli->send('r5'), undef, 'send: undef without a slot');
    ok($!{EAGAIN}, 'and $! says why');
    is($cli->send_wait('r5', 0.01), undef, 'send_wait: undef when the time is over');
    ok($!{ETIMEDOUT}, 'and why');
    is($cli->req_wait('r5', 0.01), undef, 'so does req_wait');
    is_deeply([$srv->recv_multi(0)], [], 'recv_multi of none');
    is_deeply([$srv->recv_multi(2)], ['r1', $ids[0], 'r2', $ids[1]], 'recv_multi');
    is_deeply([$srv->drain(1)], ['r3', $ids[2]], 'drain of one');
    is_deeply([$srv->drain], ['r4', $ids[3]], 'drain');
    is_deeply([$srv->drain], [], 'nothing is left');
    is_deeply([$srv->recv_wait_multi(5, 0.01)], [], 'recv_wait_multi, and the time is over');
    ok($srv->reply($_, 'ok'), 'reply') for @ids;
    is($cli->get($_), 'ok', 'get') for @ids;
    @ids = map { $cli->send_wait("w$_", 1) } 1 .. 3;
    my @pairs = map { ("w$_", $ids[$_ - 1]) } 1 .. 3;
    is_deeply([$srv->recv_wait_multi(2**40, 1)], \@pairs, 'recv_wait_multi');
    is_deeply([$srv->clear], [], 'clear returns nothing');
    ok($srv->reply($_, 'ok'), 'what was taken stays') for @ids;
    $cli->get($_) for @ids;
    my $id = $cli->send('cleared');
    $srv->clear;
    is($srv->size, 0, 'clear: nothing waits');
    is($cli->pending, 1, 'the call is pending until get');
    is($cli->get_wait($id, 5), undef, 'get is undef after clear');
    ok($!{ECANCELED}, 'and says so');
    is($cli->pending, 0, 'nothing is pending');
}
{
    my $path = path();
    my $srv  = Pipework::ReqRep->new($path, 8, 4, 32);
    is_deeply([$srv->sync], [], 'sync');
    is_deeply([$srv->unlink], [], 'unlink');
    ok(!-e $path, 'the name is gone');
    is_deeply([$srv->unlink], [], 'a file that is gone is no error');
    Pipework::ReqRep->new($path, 8, 4, 32);
    $srv->unlink;
    ok(-e $path, 'of an object: only its own file');
    Pipework::ReqRep->unlink($path);
    ok(!-e $path, 'CLASS->unlink');
    is_deeply([Pipework::ReqRep->unlink($path)], [], 'again');
    my ($anonymous) = ends();
    ok(!eval { $anonymous->unlink; 1 }, 'an anonymous one');
    like($@, qr/^cannot unlink anonymous or memfd channel/, 'croaks');
    is($srv->is_empty, 1, 'the object goes on');
}
{
    my ($srv, $cli) = ends();
    my @keys = qw(size capacity resp_slots resp_data_max mmap_size requests replies send_full
        recv_empty recoveries recv_waiters send_waiters slot_waiters arena_cap arena_used);
    $srv->reply(scalar $srv->recv, 'x') if $cli->send('x');
    for my $end ($srv, $cli) {
        my $stats = $end->stats;
        is_deeply([grep { !defined $stats->{$_} } @keys], [], 'stats has all keys');
        is($stats->{$_}, 1, $_) for qw(requests replies);
        is($stats->{resp_data_max}, 32, 'resp_data_max');
        cmp_ok($stats->{mmap_size}, '>', 4096, 'mmap_size');
    }
    $srv->recv;
    is($srv->stats->{recv_empty}, 1, 'recv_empty');
    $cli->send('x') for 1 .. 9;
    cmp_ok($cli->stats->{send_full}, '>=', 1, 'send_full');
}

# ---------------------------------------------------------------- exceptions and their words
sub dies {
    my ($code, $words, $name) = @_;
    my $lived = eval { $code->(); 1 };
    ok(!$lived, "$name dies");
    like($@, $words, "$name: the words");
}
{
    my ($srv, $cli) = ends();
    dies(sub { $cli->$_('x' x 4097, 1) }, qr/^Pipework::ReqRep::Client: request too long/,
        $_) for qw(req_wait send_wait send_wait_notify);
    dies(sub { $cli->$_('x' x 4097) }, qr/^Pipework::ReqRep::Client: request too long/, $_) for qw(req send send_notify);
    is($cli->pending, 0, 'nothing stays behind');
    ok(my $id = $cli->send('x' x 4096), 'the longest request');
    is((my @got = $srv->recv)[0], 'x' x 4096, 'arrives');
    dies(sub { $srv->reply($id, 'y' x 33) }, qr/^Pipework::ReqRep: response too long \(max 32 bytes\)/, 'reply');
    is($srv->reply($id, 'y' x 32), 1, 'the id stays good');
    is($cli->get($id), 'y' x 32, 'the longest response');
    dies(sub { $cli->get(4 | 1 << 24) }, qr/^Pipework::ReqRep::Client: invalid slot index/,
        'get of another segment\'s slot');
    dies(sub { $cli->get_wait(4 | 1 << 24) }, qr/^Pipework::ReqRep::Client: invalid slot index/,
        'get_wait');
    dies(sub { $srv->reply(4 | 1 << 24, 'y') }, qr/^Pipework::ReqRep: invalid slot index/, 'reply');
    $cli->cancel(4 | 1 << 24);
    pass('cancel never dies');
    dies(sub { $cli->req_wait('x') }, qr/^Usage: /, 'req_wait without a time-out');
    dies(sub { Pipework::ReqRep::recv($cli) }, qr/^Expected a Pipework::ReqRep object/,
        'another class');
    dies(sub { Pipework::ReqRep->recv }, qr/^Expected a Pipework::ReqRep object/, 'a class');
    dies(sub { Pipework::ReqRep::Client::send(bless([], 'Pipework::ReqRep::Client'), 'x') },
        qr/^Expected a Pipework::ReqRep::Client object/, 'a forged object');
}
{
    my $none = "$folder/none/at/all";
    dies(sub { Pipework::ReqRep::Client->new($none) },
        qr/^Pipework::ReqRep::Client->new: \Q$none\E: No such file/, 'Client->new');
    dies(sub { Pipework::ReqRep->new($none, 8, 4, 32) },
        qr/^Pipework::ReqRep->new: \Q$none\E: No such/, 'new');
    for my $content ("\0", "\0" x 8192, 'RRS1' . 'x' x 9000) {
        my $file = path();
        open my $out, '>', $file or die $!;
        print $out $content;
        close $out;
        dies(sub { Pipework::ReqRep->new($file, 8, 4, 32) },
            qr/^Pipework::ReqRep->new: \Q$file\E: invalid or incompatible/,
                'new, of a file that is no segment');
        is(-s $file, length $content, 'it stays as it was');
    }
    dies(sub { Pipework::ReqRep->new("a\0b", 8, 4, 32) }, qr/NUL/, 'a path with a NUL');
    dies(sub { Pipework::ReqRep->new(undef, 8, 0, 32) }, qr/^Pipework::ReqRep->new: /, 'no slots');
    my @wrong = ([2**32, 4, 32], [8, 2**32, 32], [8, 4, 2**32], [8, 4, 32, 2**33], [8, 4, -1]);
    for my $sizes (@wrong, ['nan', 4, 1]) {
        dies(sub { Pipework::ReqRep->new(undef, @$sizes) },
            qr/^Pipework::ReqRep->new: \w+ must be from 0/, "sizes @$sizes");
    }
    dies(sub { Pipework::ReqRep->new(path(), 8, 4, 32, 4096, $_) },
        qr/^Pipework::ReqRep->new: mode/, 'mode')
        for 0, 0400, 0200, 01600, 010600;
    pipe my $in, my $out;
    for my $class (@classes) {
        dies(sub { $class->new_from_fd($_) },
            qr/^$class->new_from_fd: invalid/, "new_from_fd, of $_")
            for -1, fileno $in, 2**31, 'x';
        dies(sub { $class->new_from_fd(undef) }, qr/^$class->new_from_fd: invalid/, 'of undef');
    }
    my $str = Pipework::ReqRep->new(undef, 8, 4, 32);
    my $int = Pipework::ReqRep::Int->new(undef, 8, 4);
    dies(sub { Pipework::ReqRep::Int::Client->new_from_fd($str->memfd) },
        qr/invalid or incompatible/, 'Str as Int');
    dies(sub { Pipework::ReqRep::Client->new_from_fd($int->memfd) }, qr/invalid or incompatible/,
        'Int as Str');
}

# ---------------------------------------------------------------- Int
{
    my $path = path();
    my $srv  = Pipework::ReqRep::Int->new($path, 1024, 64);
    my $cli  = Pipework::ReqRep::Int::Client->new($path);
    is($srv->resp_slots, 64, 'Int: resp_slots');
    is($srv->capacity, 1024, 'capacity');
    is_deeply([$srv->recv], [], 'recv: the empty list');
    my $id;
    for my $value (0, 42, -7, 1 << 62, -(1 << 62), 9223372036854775807, -9223372036854775807 - 1) {
        $id = $cli->send($value);
        is_deeply([$srv->recv_wait(1)], [$value, $id], "a request of $value");
        is($srv->reply($id, $value), 1, 'reply');
        is($cli->get($id), $value, 'a response');
    }
    is($cli->get($id), undef, 'get a second time');
    is($srv->reply($id, 1), '', 'reply a second time');
    my @ids = map { $cli->send($_) } 1 .. 5;
    is_deeply([$srv->recv_multi(2)], [1, $ids[0], 2, $ids[1]], 'recv_multi');
    is_deeply([$srv->recv_wait_multi(2, 1)], [3, $ids[2], 4, $ids[3]], 'recv_wait_multi');
    is_deeply([$srv->drain], [5, $ids[4]], 'drain');
    is_deeply([$srv->drain], [], 'nothing is left');
    $cli->cancel($ids[0]);
    is($srv->reply($ids[0], 1), '', 'cancelled');
    ok(!exists $srv->stats->{arena_cap}, 'stats without an arena');
    is($srv->stats->{requests}, 12, 'stats');
    defined(my $pid = fork) or die "fork: $!";
    if (!$pid) {
        while (my ($n, $i) = $srv->recv_wait(20)) {
            $srv->reply($i, $n * 2);
            last if !$n;
        }
        exit 0;
    }
    is($cli->req(21), 42, 'req');
    is($cli->req_wait(-21, 5), -42, 'req_wait');
    my $later = $cli->send_wait(4, 1);
    is($cli->get_wait($later, 5), 8, 'send_wait and get_wait');
    is($cli->req(0), 0, '0 is a response');
    waitpid $pid, 0;
    my $mode = path();
    Pipework::ReqRep::Int->new($mode, 8, 4, 0660);
    is((stat $mode)[2] & 07777, 0660, 'mode');
    my $named = Pipework::ReqRep::Int->new_memfd('numbers', 8, 4);
    my $one   = Pipework::ReqRep::Int::Client->new_from_fd($named->memfd)->send(-1);
    is_deeply([Pipework::ReqRep::Int->new_from_fd($named->memfd)->recv], [-1, $one],
        'new_memfd, new_from_fd');
    $srv->unlink;
    ok(!-e $path, 'unlink');
}

# ---------------------------------------------------------------- files of other users, and links
{
    my ($path, $link) = (path(), path());
    my $srv = Pipework::ReqRep->new($path, 8, 4, 32);
    symlink $path, $link or die "symlink: $!";
    dies(sub { Pipework::ReqRep->new($link, 8, 4, 32) }, qr/^Pipework::ReqRep->new: \Q$link\E: /,
        'new, of a symbolic link');
    dies(sub { Pipework::ReqRep::Client->new($link) }, qr/\Q$link\E: .*symbolic link/,
        'Client->new, of a symbolic link');
}
SKIP: {
    skip 'only root can give a file away', 6 if $> != 0;
    my $path = path();
    Pipework::ReqRep->new($path, 8, 4, 32, 4096, 0666);
    chown 65534, 65534, $path or die "chown: $!";
    my $class = 'Pipework::ReqRep::Client';
    dies(sub { $class->new($path) }, qr/another user/, 'new: a file of another user');
    dies(sub { $class->open(path => $path, any_owner => 0) }, qr/another user/, 'open: the same');
    my $cli = $class->open(path => $path, any_owner => 1);
    is($cli->resp_size, 32, 'open with any_owner');
    chown 0, 0, $path;
    my $id = $cli->send('x');
    is(scalar Pipework::ReqRep->new($path, 8, 4, 32)->recv, $id, 'it is the same');
}

# ---------------------------------------------------------------- versions and subclasses
{
    for my $class (@classes) {
        ok(eval "use $class 0.05; 1", "use $class 0.05") or diag $@;
    }
    ok(!eval 'use Pipework::ReqRep 3; 1', 'not a version that there is none of');
    { package My::Server; our @ISA = 'Pipework::ReqRep' }
    { package My::Client; our @ISA = 'Pipework::ReqRep::Client' }
    my $srv = My::Server->new(undef, 8, 4, 32);
    isa_ok($srv, 'My::Server');
    {
        use utf8;
        { package Mein::Büro; our @ISA = 'Pipework::ReqRep' }
        is(ref Mein::Büro->new(undef, 8, 4, 32), 'Mein::Büro', 'a name in UTF-8');
    }
    isa_ok($srv->new(undef, 8, 4, 32), 'My::Server', 'of an object:');
    my $cli = My::Client->new_from_fd($srv->memfd);
    isa_ok($cli, 'My::Client');
    my $id = $cli->send('sub');
    is_deeply([$srv->recv], ['sub', $id], 'they work');
}
done_testing;
