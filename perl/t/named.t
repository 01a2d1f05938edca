# Arguments that are given by name, on every class that takes them.
use strict;
use warnings;
use Errno qw(EEXIST ENOENT);
use File::Temp qw(tempdir);
use FindBin ();
use lib $FindBin::Bin;
use Test::More;
use Pipework::Atomic;
use Pipework::Pipe;
use Pipework::ReqRep;

alarm 120;
my $folder = tempdir(CLEANUP => 1);
my ($server, $client) = ('Pipework::ReqRep', 'Pipework::ReqRep::Client');

sub dies {
    my ($code, $words, $name) = @_;
    my $lived = eval { $code->(); 1 };
    like($lived ? 'it lived' : "$@", $words, $name);
}

subtest 'create makes a segment of the sizes that were named' => sub {
    my %sizes = (slots => 4, queue => 16, request_bytes => 100, reply_bytes => 50, members => 7);
    my $srv = $server->create(path => "$folder/all", mode => 0640, sparse => 1, %sizes);
    is_deeply($srv->geometry, {%sizes, blobs => 8, integers => 0}, 'geometry');
    is((stat "$folder/all")[2] & 07777, 0640, 'mode');
    is($srv->path, "$folder/all", 'path');
    my $int = Pipework::ReqRep::Int->create(slots => 4);
    is($int->geometry->{integers}, 1, 'Int->create');
    is($int->path, undef, 'without a path');
    my $usual = $server->create(path => undef, slots => undef)->geometry;
    is_deeply([@$usual{qw(slots queue request_bytes reply_bytes members)}],
        [256, 512, 4096, 4096, 256], 'undef and absent are the defaults of the library');
};

subtest 'create refuses what exists, and open what does not' => sub {
    my ($path, $none) = ("$folder/once", "$folder/none");
    my $srv = $server->create(path => $path, slots => 4);
    dies(sub { $server->create(path => $path) }, qr/^$server->create: \Q$path\E: File exists/, 'create');
    ok($!{EEXIST}, '$!');
    my $again = $server->open_or_create(path => $path);
    is($again->resp_slots, 4, 'open_or_create opens one of other sizes');
    dies(sub { $server->open_or_create(path => $path, slots => 5) }, qr/invalid or incompatible/,
        'but not one of other sizes than those that were named');
    is($server->open_or_create(path => "$folder/new", slots => 3)->resp_slots, 3, 'and makes one');
    is($server->open(path => $path)->resp_slots, 4, 'open');
    for my $class ($server, $client) {
        dies(sub { $class->open(path => $none) }, qr/^$class->open: \Q$none\E: No such file/, 'open');
        ok($!{ENOENT}, '$!');
        dies(sub { $class->open(@$_) }, qr/^$class->open: either path or fd/, 'not one of the two')
            for [], [path => $path, fd => 0];
        dies(sub { $class->open(fd => -1) }, qr/^$class->open: invalid descriptor/, 'a wrong fd');
    }
    dies(sub { $server->open_or_create }, qr/path is missing/, 'open_or_create without a path');
    ok(!-e $none, 'nothing was made');
};

subtest 'a call whose ends were opened by name' => sub {
    my $srv = $server->create(slots => 4);
    my $cli = $client->open(fd => $srv->memfd, redeliveries => 3);
    my $id = $cli->send_wait('x', timeout => 5);
    is_deeply([$srv->recv_wait(timeout => 5)], ['x', $id], 'a request');
    is($srv->reply($id, 'y', timeout => 5), 1, 'its reply');
    is($cli->get_wait($id, timeout => 5), 'y', 'arrives');
    my $int = Pipework::ReqRep::Int->create;
    my $one = Pipework::ReqRep::Int::Client->open(fd => $int->memfd);
    $id = $one->send(20);
    $int->reply(scalar $int->recv_wait(timeout => 5), 21);
    is($one->get_wait($id, timeout => 5), 21, 'Int');
    dies(sub { $client->open(fd => $int->memfd) }, qr/invalid or incompatible/, 'integers as strings');
};

subtest 'timeout, in every method that takes a time' => sub {
    my $srv = $server->create;
    my $cli = $client->open(fd => $srv->memfd);
    my $id = $cli->send('x');
    my ($r) = my @ends = Pipework::Atomic->pair;
    my ($from, $to) = Pipework::Pipe->pair(capacity => 4);
    $to->send('full');
    my ($from2) = my @pipe = Pipework::Pipe->pair;
    for my $late (
        [$cli, req_wait => 'x'], [$cli, call => 'x'], [$cli, call_message => 'x'], [$cli, get_wait => $id],
        [$cli, get_message => $id], [$cli, 'recv_any'], [$cli, 'recv_any_message'],
        [$cli->stream('x'), 'next'], [$cli->stream('x'), 'next_message'], [$r, 'recv'], [$r, 'next_item'],
        [$from2, 'recv'], [$to, send => 'x'], [$to, copy_from_fd => \*STDIN],
    ) {
        my ($object, $method, @rest) = @$late;
        $! = 0;
        my @result = eval { $object->$method(@rest, timeout => 0) };
        ok(!defined $result[0] && $!{ETIMEDOUT}, ref($object) . "->$method: $!");
    }
    $srv->drain;
    for my $late (['recv_wait'], [recv_wait_multi => 2]) {
        my ($method, @rest) = @$late;
        $! = 0;
        is_deeply([$srv->$method(@rest, timeout => 0)], [], "$method returns nothing");
        ok($!{ETIMEDOUT}, "$method: $!");
    }
    my $stream = $cli->stream('x', timeout => 0);
    ok(!eval { $stream->next; 1 } && $@->kind eq 'TimedOut', 'stream keeps its time for the parts');
    $id = $srv->recv;
    is($srv->part($id, 'first', timeout => 0), 1, 'part');
    for my $method ([part => 'x'], [reply => 'x'], ['flush']) {
        my ($name, @rest) = @$method;
        is($srv->$name($id, @rest, timeout => 0), undef, "$name while the client has not taken the part");
    }
    my $full = $server->create(slots => 1);
    my $busy = $client->open(fd => $full->memfd);
    $busy->send('x');
    is($busy->$_('x', timeout => 0), undef, "$_ without a free slot") for qw(send_wait send_wait_notify);
    is($from->recv(max => 2, timeout => 5), 'fu', 'Pipe: max and timeout');
    open my $null, '>', '/dev/null' or die $!;
    is($from->copy_to_fd($null, length => 1, timeout => 5), 1, 'Pipe: length and timeout');
};

subtest 'a name that is not known dies with those that are' => sub {
    my $srv = $server->create;
    my $cli = $client->open(fd => $srv->memfd);
    my ($r, $w) = Pipework::Pipe->pair;
    my ($reader) = my @ends = Pipework::Atomic->pair;
    my $sizes = 'path, mode, slots, queue, members, sparse, blobs, blob_pool, blob_limit';
    my $opens = 'path, fd, any_owner, blob_pool, blob_limit';
    for my $call (
        ["$server->create", $server, $sizes . ', request_bytes, reply_bytes'],
        ["$server\::Int->create", "$server\::Int", $sizes],
        ["$server->open_or_create", $server, $sizes . ', request_bytes, reply_bytes'],
        ["$server->open", $server, $opens],
        ["$client->open", $client, "$opens, redeliveries, needs_server"],
        (map { ["$client->$_", $cli, 'blobs', 'x'] } qw(req send send_notify)),
        (map { ["$client->$_", $cli, 'timeout, blobs', 'x'] }
            qw(call call_message send_wait send_wait_notify stream)),
        (map { ["$server->$_", $srv, 'timeout, blobs', 1, 'x'] } qw(reply part)),
        ["$client->req_wait", $cli, 'timeout, blobs', 'x', 5], ["$server->recv_wait", $srv, 'timeout'],
        ["$client->get_message", $cli, 'timeout', 1], ["$client->recv_any_message", $cli, 'timeout'],
        ['Pipework::Atomic->recv', $reader, 'timeout'], ['Pipework::Pipe->pair', ref $r, 'capacity'],
        ['Pipework::Pipe->recv', $r, 'max, timeout'], ['Pipework::Pipe->send', $w, 'timeout', 'x'],
        ['Pipework::Pipe->copy_from_fd', $w, 'length, timeout', 0],
    ) {
        my ($name, $on, $known, @rest) = @$call;
        my ($method) = $name =~ /(\w+)$/;
        dies(sub { $on->$method(@rest, slot => 4) },
            qr/^\Q$name: unknown argument 'slot' (known: $known)\E at \Q$0/, $name);
    }
    dies(sub { $server->create('slots') }, qr/no value for 'slots'/, 'a name without a value');
    dies(sub { $server->create("$folder/x", slots => 4) }, qr{unknown argument '\Q$folder\E/x'}, 'a path alone');
};

subtest 'values that mean nothing' => sub {
    dies(sub { $server->create(slots => 2**32) }, qr/^$server->create: slots must be from 0 to/, 'a size');
    dies(sub { $server->create(slots => 0) }, qr/^$server->create: /, 'no slots');
    dies(sub { $server->create(mode => 0400) }, qr/^$server->create: mode 400 does not let/, 'a mode');
    dies(sub { $server->create(path => "a\0b") }, qr/NUL/, 'a path with a NUL');
    dies(sub { $server->create(request_bytes => 8, reply_bytes => 8) }, qr/^$server->create: .*::Int is for/,
        'strings of eight bytes, which is what integers are');
    dies(sub { $client->open(fd => 0, redeliveries => 4) }, qr/at most 3/, 'redeliveries');
};

subtest 'arguments that are tied, and that take the others away' => sub {
    package Emptying {
        sub TIESCALAR { my ($class, @of) = @_; return bless [@of], $class }
        sub FETCH { my ($value, $args) = @{$_[0]}; @$args = (); return $value }
    }
    my (@args, @others);
    @args = (undef, join('', 'sl', 'ots'), join('', '', 7));
    tie my $bytes, 'Emptying', 100, \@args;
    my $object = $server->create(request_bytes => $bytes, @args[1, 2]);
    push @others, "other $_" for 1 .. 30;
    is_deeply([@{$object->geometry}{qw(slots request_bytes)}], [7, 100], 'create');
    my $cli = $client->open(fd => $object->memfd);
    tie my $name, 'Emptying', 'timeout', \@args;
    @args = (join('', 'da', 'ta'), 0);
    ok(!eval { $cli->call($args[0], $name => $args[1]); 1 } && $@->kind eq 'TimedOut', 'call');
    is(($object->drain)[0], undef, 'which has left nothing');
};

done_testing;
