# Blobs between processes: how they are made, sent, received and freed, and the mistakes that die.
use strict;
use warnings;
use FindBin ();
use lib "$FindBin::Bin/..";
use Asleep qw(alarm_asleep);
use File::Temp qw(tempdir);
use Processes;
use Test::More;
use Pipework::ReqRep;

alarm 120;
my ($server, $client) = ('Pipework::ReqRep', 'Pipework::ReqRep::Client');
my $folder = tempdir(CLEANUP => 1);
my $number = 0;

# A new channel: its path, a server, and a client with these options.
sub channel {
    my ($made, @options) = @_;
    my $path = "$folder/rr" . $number++;
    my $srv  = $server->create(path => $path, slots => 4, %$made);
    return ($path, $srv, $client->open(path => $path, @options));
}

# The files of a channel's blobs.
sub files { my ($path) = @_; my @files = glob "$path.*.blobs/*"; return @files }

sub dies {
    my ($code, $words, $name) = @_;
    my $lived = eval { $code->(); 1 };
    like($lived ? 'it lived' : "$@", $words, $name);
}

sub texts { return [map { $_->bytes } @_] }

# ---------------------------------------------------------------- one blob

subtest 'write fills a draft, and freeze makes a blob of it' => sub {
    my (undef, @ends) = channel({});
    for my $end (@ends, Pipework::ReqRep::Int->create, Pipework::ReqRep::Int::Client->open(
        fd => Pipework::ReqRep::Int->create->memfd)) {
        my $draft = $end->blob(10);
        is($draft->length, 10, ref($end) . ': length of a draft');
        $draft->write(@$_) for [0, 'abcdef'], [6, 'ghij'], [-4, 'GH'], [3, ''], [10, ''];
        my $blob = $draft->freeze;
        is($blob->bytes, 'abcdefGHij', 'bytes');
        is($blob->length, 10, 'length');
        ok($blob->check && !$blob->is_copied, 'check and is_copied');
        is($draft->length, 10, 'length of a draft that is frozen');
        is($end->blob_from("caf\x{e9}")->bytes, "caf\x{e9}", 'blob_from');
        is($end->blob_from('')->length, 0, 'blob_from of the empty string');
        is($end->blob(0)->freeze->bytes, '', 'an empty draft');
    }
};

subtest 'substr returns what Perl returns' => sub {
    my (undef, $srv) = channel({});
    my $blob = $srv->blob_from('abcd');
    my (%here, %there, @warned);
    local $SIG{__WARN__} = sub { push @warned, $_[0] =~ s/ at .*//sr };
    for my $from (-6 .. 6) {
        $there{$from} = substr 'abcd', $from;
        $here{$from}  = $blob->substr($from);
        for my $count (-6 .. 6) {
            $there{"$from $count"} = substr 'abcd', $from, $count;
            $here{"$from $count"}  = $blob->substr($from, $count);
        }
    }
    is_deeply(\%here, \%there, 'values');
    my $outside = grep { !defined } values %there;
    is_deeply(\@warned, [('substr outside of string') x (2 * $outside)], 'warnings');
    my ($most, $least) = (~0 >> 1, -(~0 >> 1) - 1);
    is($blob->substr(1, $_), 'bcd', "$_ bytes") for $most, ~0, 1e30;
    is($blob->substr(1, $least), '', 'the smallest number of bytes');
    @warned = ();
    is($blob->substr($_), substr('abcd', $_), "from $_") for $least, $most;
    is(scalar @warned, 2, 'with the same warning');
};

# ---------------------------------------------------------------- sending and receiving

# Each sends a request with blobs and receives its reply.
my %ways = (
    req              => sub { $_[0]->req('x', blobs => $_[1]) },
    req_wait         => sub { $_[0]->req_wait('x', 20, blobs => $_[1]) },
    call             => sub { $_[0]->call('x', timeout => 20, blobs => $_[1]) },
    call_message     => sub { $_[0]->call_message('x', blobs => $_[1], timeout => 20) },
    send             => sub { $_[0]->get_wait($_[0]->send('x', blobs => $_[1]), 20) },
    send_notify      => sub { $_[0]->get_message($_[0]->send_notify('x', blobs => $_[1]), 20) },
    send_wait        => sub { ($_[0]->send_wait('x', 20, blobs => $_[1]), $_[0]->recv_any(20))[1] },
    send_wait_notify => sub {
        $_[0]->send_wait_notify('x', timeout => 20, blobs => $_[1]);
        ($_[0]->recv_any_message(timeout => 20))[0];
    },
    stream           => sub { $_[0]->stream('x', 20, blobs => $_[1])->next },
    stream_messages  => sub { $_[0]->stream('x', timeout => 20, blobs => $_[1])->next_message(20) },
);
for my $kind ('', '::Int') {
    my $srv = "Pipework::ReqRep$kind"->create(slots => 4);
    my $cli = "Pipework::ReqRep${kind}::Client"->open(fd => $srv->memfd);
    my $x   = $kind ? 0 : 'x';
    my $pid = child {
        for (grep { !$kind || !/stream/ } sort keys %ways) {
            my (undef, $id) = $srv->recv_wait(20);
            my @blobs = $srv->blobs($id);
            my $sizes = join ' ', map { $_->length } @blobs;
            return 1 if $sizes ne '5 6' || $srv->blobs($id) != 2;
            $srv->reply($id, 7, blobs => [$blobs[1]]);
        }
        return 0;
    };
    local $SIG{__WARN__} = sub { };
    for my $way (grep { !$kind || !/stream/ } sort keys %ways) {
        my $reply = $ways{$way}->($cli, [map { $cli->blob_from($_) } 'first', 'second']);
        if (ref $reply) {
            is($reply->data, 7, "$way$kind: data");
            is_deeply(texts($reply->blobs), ['second'], "$way$kind: blobs");
        }
        else { is($reply, 7, "$way$kind drops the blobs of the reply") }
    }
    is(status($pid), 0, "the server$kind has received them");
    is($cli->stats->{blob_bytes_held}, 0, 'nothing is held after that');
}

subtest 'parts carry blobs' => sub {
    my (undef, $srv, $cli) = channel({});
    my ($one, $two) = map { $srv->blob_from($_) } 'one', 'two';
    my $pid = child {
        for (1 .. 2) {
            my (undef, $id) = $srv->recv_wait(20);
            $srv->part($id, 1, 20, blobs => [$one]);
            $srv->part($id, 2, timeout => 20);
            $srv->reply($id, 3, timeout => 20, blobs => [$two, $one]);
        }
        return 0;
    };
    my $stream = $cli->stream('x', timeout => 20);
    my @parts;
    while (my $part = $stream->next_message) { push @parts, [$part->data, @{texts($part->blobs)}] }
    is_deeply(\@parts, [[1, 'one'], [2], [3, 'two', 'one']], 'each its own');
    is($stream->next_message, undef, 'next_message at the end');
    my $whole = $cli->call_message('x', 20);
    is_deeply([$whole->data, @{texts($whole->blobs)}], [123, 'one', 'two', 'one'], 'a client that wants no parts has all');
    is(scalar $whole->blobs, 3, 'blobs in scalar context');
    is(status($pid), 0, 'the server');
};

subtest 'a blob goes through several objects of a channel without a copy' => sub {
    my ($path, $srv, $cli) = channel({blob_pool => 0}, blob_pool => 0);
    my $id = $cli->send('x', blobs => [$srv->blob_from('the same')]);
    my $got = $srv->recv;
    my ($blob) = $srv->blobs($got);
    is(files($path), 1, 'one file');
    my $again = $cli->send('y', blobs => [$blob]);
    is(files($path), 1, 'also when a server hands it to a client');
    undef $blob;
    $srv->reply($got, '');
    $cli->get($id);
    ($blob) = $srv->blobs(scalar $srv->recv);
    is($blob->bytes, 'the same', 'bytes');
    my $elsewhere = Pipework::ReqRep->create;
    my $far = $client->open(fd => $elsewhere->memfd);
    $far->send('z', blobs => [$blob]);
    is_deeply(texts($elsewhere->blobs(scalar $elsewhere->recv)), ['the same'], 'another channel gets a copy');
    is(files($path), 1, 'and this one keeps its file');
};

# ---------------------------------------------------------------- processes that end

subtest 'an image goes through three processes, and one of them is killed' => sub {
    my ($path, $srv, $cli) = channel({}, redeliveries => 1);
    my @workers = map {
        child {
            my $mine = $server->open(path => $path);
            while (my ($step, $id) = $mine->recv_wait(60)) {
                last if $step eq 'stop';
                my ($before) = $mine->blobs($id);
                my $draft = $mine->blob($before->length);
                if ($step eq 'invert') { $draft->write(0, ~${$before->map}) }
                else {
                    $draft->write(0, 'half');
                    kill KILL => $$ if !$mine->redeliveries($id);
                    $draft->write(0, scalar reverse ${$before->map});
                }
                $mine->reply($id, $$, blobs => [$draft->freeze]);
            }
            return 0;
        }
    } 1 .. 2;
    my $image = join '', map { chr($_ % 200) x 1000 } 1 .. 8000;
    my $blob  = $cli->blob_from($image);
    my @by;
    for my $step ('invert', 'flip') {
        my $reply = $cli->call_message($step, timeout => 60, blobs => [$blob]);
        push @by, $reply->data;
        ($blob) = $reply->blobs;
    }
    ok($blob->bytes eq reverse(~$image), 'the image arrives whole');
    $cli->send('stop');
    is_deeply([sort map { status($_) } @workers], [0, 'signal 9'], 'one worker was killed');
    is($cli->stats->{blobs_copied}, 0, 'nothing was copied on the way');
    $srv->recover;
    undef $blob;
    is($cli->stats->{blob_bytes_held}, 0, 'nothing is held');
};

subtest 'a blob outlives its request, its sender and its channel' => sub {
    my ($path, $srv, $cli) = channel({blob_pool => 0}, blob_pool => 0);
    my $pid = child {
        my $mine = $client->open(path => $path, blob_pool => 0);
        $mine->forget($mine->send('x', blobs => [$mine->blob_from('kept' x 2000)]));
        my ($draft, $unsent) = ($mine->blob(5000), $mine->blob_from('not sent'));
        kill KILL => $$;
    };
    is(status($pid), 'signal 9', 'the sender was killed');
    my ($data, $id) = $srv->recv_wait(20);
    my ($blob) = $srv->blobs($id);
    $srv->reply($id, '');
    $srv->recover;
    is($srv->stats->{dead_members}, 1, 'its death is noticed');
    is(files($path), 1, 'which frees all but what is held');
    my $map = $blob->map;
    $srv->unlink;
    undef $srv;
    undef $cli;
    is($blob->substr(-6), 'ptkept', 'the blob is there without its channel');
    undef $blob;
    is(length $$map, 8000, 'and a map without its blob');
    undef $map;
    is(files($path), 0, 'the last holder frees it');
};

subtest 'a forked child reads blobs, and cannot use a draft' => sub {
    my ($path, $srv, $cli) = channel({blob_pool => 0}, blob_pool => 0);
    my ($blob, $draft) = ($cli->blob_from('before'), $cli->blob(3));
    my $map = $blob->map;
    my $id  = $cli->send('x', blobs => [$blob]);
    my $got = $srv->recv;
    my $pid = child {
        my @said;
        push @said, $blob->bytes eq 'before' && $$map eq 'before' ? 'reads' : 'wrong bytes';
        for my $use (sub { $draft->freeze }, sub { $draft->write(0, 'x') }) {
            eval { $use->() };
            push @said, $@ =~ /BlobMut: this draft is the parent's: make another one/ ? 'refused' : $@;
        }
        undef $draft;
        push @said, @{texts($srv->blobs($got), $cli->blob_from('new'))};
        $srv->reply($got, join(' ', @said), blobs => [$blob, $srv->blob_from('made by the child')]);
        undef $_ for $blob, $map;
        return 0;
    };
    my $reply = $cli->get_message($id, 20);
    is($reply->data, 'reads refused refused before new', 'in the child');
    is_deeply(texts($reply->blobs), ['before', 'made by the child'], 'what it has sent');
    is(status($pid), 0, 'its status');
    $draft->write(0, 'abc');
    is($draft->freeze->bytes, 'abc', 'the draft is the parent\'s');
    is("$$map " . $blob->bytes, 'before before', 'and so is the blob');
    undef $_ for $blob, $map, $reply, $draft;
    $srv->recover;
    is(files($path), 0, 'nothing is left');
};

# ---------------------------------------------------------------- limits, and memory that others change

subtest 'limits are errors that name them' => sub {
    my ($path, $srv, $cli) = channel({blobs => 2, blob_limit => 1000, blob_pool => 0}, blob_limit => 5);
    is($srv->geometry->{blobs}, 2, 'blobs');
    my $blob = $srv->blob_from('x' x 600);
    dies(sub { $srv->blob(401) }, qr/^reqrep blob: .*`blob_limit` allows at \Q$0/, 'blob_limit of create');
    is($@->kind, 'TooLong', 'its kind');
    my $draft = $srv->blob(400);
    is($srv->stats->{blob_bytes_held}, 1000, 'a draft is held, too');
    undef $draft;
    dies(sub { $cli->blob(6) }, qr/blob_limit/, 'blob_limit of open');
    my $word = qr/fewer `blobs` a message/;
    dies(sub { $cli->$_('x', 5, blobs => [($blob) x 3]) }, $word, $_) for qw(call call_message stream);
    for my $send (qw(req send send_notify send_wait send_wait_notify)) {
        is($cli->$send('x', blobs => [($blob) x 20]), undef, "$send returns undef");
        ok($!{EMSGSIZE}, "$send: $!");
        like(Pipework::error(), $word, $send);
    }
    my $id = $cli->send('x');
    my $got = $srv->recv;
    is($srv->$_($got, 'y', blobs => [($blob) x 3]), '', "$_ returns false") for qw(part reply);
    like(Pipework::error(), $word, 'reply');
    is($srv->reply($got, 'y'), 1, 'and can be called again');
    is($cli->get($id), 'y', 'which answers the request');

    $id = $cli->send('x');
    $srv->reply(scalar $srv->recv, 'y', blobs => [$blob]);
    is($cli->get_message($id, 5), undef, 'a reply beyond the blob_limit of the receiver');
    like(Pipework::error(), qr/blob_limit/, 'says so');
    dies(sub { $srv->blob(1e15) }, qr/^reqrep blob: /, 'more than there is memory');
    ok($!{ENOSPC} || $!{ENOMEM} || $!{EMSGSIZE}, "$!");
    dies(sub { $server->create(blob_pool => -1) }, qr/create: blob_pool must be 0 or more/, 'blob_pool');
    dies(sub { $client->open(path => $path, blob_limit => 'NaN') }, qr/open: blob_limit must be/, 'blob_limit');
    ok($client->open(path => $path, blob_limit => 9**9**9)->blob_from('x'), 'infinity is no limit');
    my $none = $server->create(blobs => 0);
    is($client->open(fd => $none->memfd)->send('x', blobs => [$none->blob_from('')]), undef, 'blobs => 0');
};

subtest 'memory is used again, as blob_pool allows' => sub {
    my ($path, $srv) = channel({});
    my $none = $server->open(path => $path, blob_pool => 0);
    $none->blob_from('x');
    is(files($path), 0, 'none');
    $srv->blob_from('x' x 5000);
    my @kept = files($path);
    is(@kept, 1, '128 MiB');
    $srv->blob_from('y' x 4999);
    is_deeply([files($path)], \@kept, 'the same file');
    undef $srv;
    is(files($path), 0, 'until the object goes');
};

subtest 'a blob that other users may change is copied' => sub {
    my ($path, $srv, $cli) = channel({mode => 0660});
    my $blob = $cli->blob_from('for the group');
    $cli->send('x', blobs => [$blob]);
    my ($got) = $srv->blobs(scalar $srv->recv);
    ok($got->is_copied && !$blob->is_copied, 'is_copied');
    is($got->bytes . ${$got->map}, 'for the group' x 2, 'bytes and map');
    ok($got->check, 'check');
    cmp_ok($srv->stats->{blobs_copied}, '>', 0, 'blobs_copied');
    is($srv->stats->{blob_bytes_held}, 13, 'blob_bytes_held counts copies');
};

subtest 'a blob that was cut short says so' => sub {
    my ($path, $srv) = channel({});
    my $blob = $srv->blob_from('x' x 10_000);
    my $map  = $blob->map;
    truncate +(files($path))[0], 4096 or die $!;
    is($blob->bytes . $$map, "\0" x 20_000, 'the lost bytes are zero');
    dies(sub { $blob->check }, qr/^blob check: /, 'check');
    is($@->kind, 'Corrupt', 'its kind');
    my %before = map { $_ => 1 } files($path);
    my $draft = $srv->blob(10_000);
    truncate +(grep { !$before{$_} } files($path))[0], 4096 or die $!;
    $draft->write(5000, 'lost');
    dies(sub { $draft->freeze }, qr/^blob freeze: /, 'freeze');
    dies(sub { $draft->write(0, '') }, qr/frozen/, 'the draft is over');
};

# ---------------------------------------------------------------- mistakes

subtest 'mistakes die with what to do' => sub {
    my (undef, $srv, $cli) = channel({});
    my ($blob, $draft, $gone) = ($cli->blob_from('x'), $cli->blob(3), $cli->blob_from('y'));
    $gone->DESTROY;
    my $list = 'blobs takes a reference to an array of Pipework::ReqRep::Blob objects, not';
    for my $wrong (
        [$blob, "$list Pipework::ReqRep::Blob: write blobs => [\$blob]"],
        [[$draft], "$list Pipework::ReqRep::BlobMut: freeze it first"],
        [$draft, "$list Pipework::ReqRep::BlobMut: freeze it first"],
        [['x'], "$list a string: blob_from(\$bytes)"], ['x', "$list a string: "],
        [[undef], "$list undef: "], [{}, "$list HASH: "], [[$blob, [$blob]], "$list ARRAY: "],
        [[$blob->map], "$list SCALAR: "], [[$cli], "$list Pipework::ReqRep::Client: "],
        [[$gone], 'Attempted to use a destroyed Pipework::ReqRep::Blob object'],
        [[bless [], 'Pipework::ReqRep::Blob'], 'Expected a Pipework::ReqRep::Blob object'],
    ) {
        my ($blobs, $words) = @$wrong;
        dies(sub { $cli->send('x', blobs => $blobs) }, qr/^\Q$words\E.* at \Q$0/, $words);
    }
    is($cli->size, 0, 'nothing was sent');
    ok($cli->send('x', blobs => undef) && $cli->send('x', blobs => []), 'undef and an empty list are none');
    my ($data, $id) = $srv->recv;
    is_deeply([$srv->blobs($id)], [], 'blobs of a request without any');
    $srv->reply($id, '');
    for my $over ($id, 1 << 20, 0) {
        dies(sub { $srv->blobs($over) }, qr/^reqrep blobs: /, 'blobs of a request that is over');
        is($@->kind, 'Stale', 'its kind');
    }
    dies(sub { $srv->blob(-1) }, qr/^Pipework::ReqRep->blob: negative length at \Q$0/, 'a negative length');
    for my $method (qw(blob_from write)) {
        my @at = $method eq 'write' ? 0 : ();
        my $on = @at ? $draft : $cli;
        dies(sub { $on->$method(@at, $_) }, qr/^$method takes a string, not a reference/, $method)
            for $blob, $blob->map, \'x', [];
        dies(sub { $on->$method(@at, "\x{100}") }, qr/^Wide character in $method/, $method);
    }
    for my $outside ([4, ''], [-4, ''], [0, 'four'], [2, 'xx'], [~0, 'x'], [-1, 'xx'], [1e30, 'x'], [-1e30, 'x']) {
        dies(sub { $draft->write(@$outside) },
            qr/^Pipework::ReqRep::BlobMut->write: \d bytes at offset -?\d+ are outside of a blob of 3 bytes at/,
            "write at $outside->[0]");
    }
    my $frozen = qr/^Pipework::ReqRep::BlobMut: this draft is frozen: use what freeze returned at \Q$0/;
    $draft->freeze;
    dies(sub { $draft->write(0, 'x') }, $frozen, 'write after freeze');
    dies(sub { $draft->freeze }, $frozen, 'freeze after freeze');
    $_->DESTROY for $draft, $blob;
    my %destroyed = ('Pipework::ReqRep::BlobMut' => $draft, 'Pipework::ReqRep::Blob' => $blob);
    for my $class (sort keys %destroyed) {
        no strict 'refs';
        for my $method (sort grep { defined &{"${class}::$_"} } keys %{"${class}::"}) {
            my @args = $method eq 'write' ? (0, '') : $method eq 'substr' ? 0 : ();
            next if $method eq 'DESTROY';
            dies(sub { $destroyed{$class}->$method(@args) }, qr/^Attempted to use a destroyed $class object/, $method);
            dies(sub { $class->$method(@args) }, qr/^Expected a $class object/, "$class->$method");
        }
    }
};

subtest 'arguments that are tied may take everything away' => sub {
    package Taking {
        sub TIESCALAR { my ($class, @of) = @_; return bless [@of], $class }
        sub FETCH { my ($value, $take) = @{$_[0]}; $take->(); return $value }
        sub TIEARRAY { my ($class, @of) = @_; return bless [@of], $class }
        sub FETCHSIZE { 2 }
    }
    my (undef, $srv, $cli) = channel({});
    my ($one, $two) = map { $cli->blob_from($_) } 'one', 'two';
    my @list = ($one, undef);
    tie $list[1], 'Taking', $two, sub { $one->DESTROY; undef $one; @list = () };
    ok($cli->send('x', blobs => \@list), 'an element that destroys the one before');
    is_deeply(texts($srv->blobs(scalar $srv->recv)), ['one', 'two'], 'both arrive');
    my $keep = $cli;
    tie my @tied, 'Taking', $two, sub { undef $cli };
    ok($cli->send('x', blobs => \@tied), 'a tied array');
    is_deeply(texts($srv->blobs(scalar $srv->recv)), ['two', 'two'], 'arrives');
    my $draft = $keep->blob(3);
    my $blob;
    tie my $bytes, 'Taking', 'new', sub { $blob = $draft->freeze };
    dies(sub { $draft->write(0, $bytes) }, qr/frozen/, 'write with bytes that freeze the draft');
    $draft = $keep->blob(3);
    tie $bytes, 'Taking', 'new', sub { undef $draft };
    dies(sub { $draft->write(0, $bytes) }, qr/destroyed/, 'write with bytes that destroy it');
    my $fetched = 0;
    tie $bytes, 'Taking', 'tied', sub { $fetched++ };
    is($keep->blob_from($bytes)->bytes . $fetched, 'tied1', 'a tied value is fetched once');
    tie $bytes, 'Taking', [], sub { };
    dies(sub { $keep->blob_from($bytes) }, qr/not a reference/, 'one that is a reference');
    { package Text; use overload '""' => sub { 'text' } }
    is($keep->blob_from(bless [], 'Text')->bytes, 'text', 'but that of an overloaded object is taken');
    my @held = map { $keep->blob_from($_) } 'held';
    my @full = map { $keep->send('full') } 1 .. 2;
    local $SIG{ALRM} = sub { $_->DESTROY for splice @held; $keep->cancel($full[0]) };
    alarm_asleep;
    ok($keep->send_wait('x', 60, blobs => \@held), 'a signal handler destroys blobs that wait to be sent');
    is_deeply(\@held, [], 'it has run');
    my %taken = $srv->drain;
    is_deeply(texts($srv->blobs($taken{x})), ['held'], 'and they arrive');
};

done_testing;
