# Lost messages and how they are reported, and streams that make no sense.
use strict;
use warnings;
use Test::More;
use Pipework::Atomic;

alarm 120;

my $class = 'Pipework::Atomic';

# A part as it is in a plain pipe, or between its control bytes in a mixed one.
sub part {
    my ($id, $data, $tid) = @_;
    return pack('l l L L', 4242, $tid // 7, $id, length $data) . $data;
}
sub mixed { return "\x0E\x10" . part(@_) . "\x0F" }

# A reader of these bytes, and no more.
sub reader_of {
    my ($bytes, %options) = @_;
    my ($r, $w) = $class->pair(%options);
    syswrite $w->wh, $bytes;
    return $r;
}

# The warnings of a block.
sub warnings_of (&) {
    my ($code, @warnings) = @_;
    local $SIG{__WARN__} = sub { push @warnings, @_ };
    $code->();
    return @warnings;
}

my $torn = part(2, 'abc') . part(1, 'de') . part(0, 'whole', 9);

subtest 'a plain stream' => sub {
    my $r = reader_of($torn);
    my @warnings = warnings_of {
        is($r->read_message, 'whole', 'what is whole');
        is_deeply([$r->read_message], [], 'the end');
    };
    is(@warnings, 1, 'a warning');
    like(
        $warnings[0],
qr/^A message of writer 4242:7 is lost \(Torn\): 2 parts and 5 bytes of it had come at \Q$0/,
        'words'
    );
    is_deeply($r->torn, {writer => '4242:7', kind => 'Torn', parts => 2, bytes => 5}, 'torn');
    is($r->eof, 1, 'the end');
    $r = reader_of($torn);
    is_deeply([warnings_of { no warnings; 1 while $r->read_message }], [], 'no warnings');
    $r = reader_of($torn);
    is_deeply([warnings_of { no warnings 'pipework'; 1 while $r->read_message }], [], 'none of these');
    $r = reader_of($torn);
    is(
        scalar(
            () = warnings_of {
                eval 'no strict; BEGIN { ${^WARNING_BITS} = undef } 1 while $r->read_message'
            }
        ),
        1,
        'nothing said: a warning'
    );
};

subtest 'on_torn' => sub {
    my @reports;
    my $r = reader_of($torn, on_torn => sub { push @reports, @_ });
    is_deeply([warnings_of { $r->read_message; $r->read_message }], [], 'instead of a warning');
    is_deeply(\@reports, [{writer => '4242:7', kind => 'Torn', parts => 2, bytes => 5}], 'on_torn gets the report');
    $r = reader_of($torn, on_torn => sub { die "from on_torn\n" });
    is($r->read_message, 'whole', 'what is whole');
    ok(!eval { $r->read_message; 1 }, 'it may die');
    is($@, "from on_torn\n", 'an exception of on_torn leaves the call');
    is_deeply([$r->read_message], [], 'which goes on');
    $r = reader_of($torn, on_torn => sub { undef $r });
    $r->read_message;
    ok(!eval { $r->read_message; 1 }, 'it may destroy the reader');
    like($@, qr/^Attempted to use a destroyed/, 'words');
    $r = reader_of($torn, on_torn => sub { $r->close });
    $r->read_message;
    is_deeply([$r->read_message], [], 'it may close it');
};

subtest 'one that needs a large stack' => sub {
    my $many = 500_000;
    my $deep = sub {
        return scalar(() = map { $_ } 1 .. $many);
    };
    my $bytes = part(0, 'x') . part(1, 'abc', 8) . part(0, 'd', 9) x 2;
    $bytes .= part(1, 'abc', 8) . part(0, 'd', 9);
    my $r = reader_of($bytes, on_torn => $deep, compression => undef);
    is_deeply([map { scalar $r->read_message } 1 .. 4], [qw(x d d d)], 'in read_message');
    $bytes = mixed(1, 'abc', 8) . mixed(1, 'abc', 8) . "line\n";
    $r = reader_of($bytes, on_torn => $deep, mixed_data_mode => 1);
    is_deeply([$r->get_line_burst_or_data], [line => "line\n"], 'in get_line_burst_or_data');
};

subtest 'a mixed stream' => sub {
    my $bytes = mixed(2, 'abc') . "text\n" . mixed(0, 'whole', 9) . 'rest';
    my $r = reader_of($bytes, mixed_data_mode => 1, on_torn => sub { });
    is_deeply([$r->get_line_burst_or_data], [line => "text\n"], 'all that is usable');
    is_deeply([$r->get_line_burst_or_data], [message => 'whole'], 'is given out');
    is_deeply([$r->get_line_burst_or_data], [line => 'rest'], 'first');
    for my $method (qw(get_line_burst_or_data get_line_burst_or_data eof)) {
        ok(!eval { $r->$method; 1 }, "then $method dies");
        like($@, qr/^Pipe is in an invalid state 'Incomplete message received before EOF' at \Q$0/, 'words');
    }
    $r = reader_of($bytes, mixed_data_mode => 1);
    my @types;
    while (eval { push @types, $r->next_item(5)->{type} }) {
    }
    is_deeply(\@types, [qw(line message line torn)], 'next_item has the report in its place');
    is($@->kind, 'Closed', 'and then the end');
};

subtest 'our own way' => sub {
    my $r = reader_of($torn);
    is($r->recv(5), 'whole', 'recv');
    ok(!eval { $r->recv(5); 1 }, 'a loss');
    is($@->kind, 'Torn', 'the kind');
    is_deeply($@->torn, {writer => '4242:7', kind => 'Torn', parts => 2, bytes => 5}, 'whose');
    ok(!eval { $r->recv(5); 1 } && $@->kind eq 'Closed', 'the end');
};

subtest 'too long' => sub {
    my $r = reader_of(part(0, 'x' x 101) . part(0, 'x' x 100, 9), max_message => 100);
    ok(!eval { $r->read_message; 1 }, 'one more than max_message');
    like($@, qr/^A message of writer 4242:7 is longer than max_message at \Q$0/, 'words');
    is(0 + $!, Errno::EMSGSIZE(), '$!');
    is(length $r->read_message, 100, 'the next call goes on');
    my ($r2, $w2) = $class->pair(compression => 'zstd', max_message => 1000);
    $w2->write_message('x' x 1_000_000);
    ok(!eval { $r2->read_message; 1 } && $@ =~ /longer than max_message/, 'what would decompress to more');
};

subtest 'strict' => sub {
    my %strict = (mixed_data_mode => 1, strict => 1);
    my $r = reader_of("a\n\x0Eburst without an end", %strict);
    is_deeply([$r->get_line_burst_or_data], [line => "a\n"], 'text');
    for my $method (qw(get_line_burst_or_data get_line_burst_or_data eof)) {
        ok(!eval { $r->$method; 1 }, "then $method dies");
        like(
            $@,
qr/^Pipe is in an invalid state 'Incomplete burst data received before end of pipe' at \Q$0/,
            'words'
        );
    }
    my ($r2, $w2) = $class->pair(%strict);
    syswrite $w2->wh, "\x0E\x10" . ("\xFF" x 16) . ' no part';
    ok(!eval { $r2->get_line_burst_or_data; 1 }, 'in the middle');
    like($@, qr/^Pipe is in an invalid state '/, 'words');
};

subtest 'a stream that makes no sense' => sub {
    my $r = reader_of(part(0, 'good') . ("\xFF" x 100));
    is($r->read_message, 'good', 'what came before');
    for (1 .. 2) {
        ok(!eval { $r->read_message; 1 }, 'the rest');
        is($@->kind, 'Corrupt', 'is nothing');
    }
    ok(!eval { $r->eof; 1 }, 'eof dies, too');
    my ($plain, $mixed) = ($class->pair)[0], 0;
    my ($r2, $w2) = $class->pair;
    $w2->set_mixed_data_mode;
    $w2->write_message('mixed');
    ok(!eval { $r2->read_message; 1 }, 'the wrong mode');
    like("$@", qr/mixed/, 'is said');
};

subtest 'any bytes' => sub {
    srand 7;
    local $SIG{__WARN__} = sub { };
    for my $round (1 .. 300) {
        my $bytes = join '', map {
            my $kind = int rand 6;
            $kind == 0
                ? mixed(int rand 3, 'd' x rand 50, 70_000 + int rand 3)
                : $kind == 1 ? "\x0Eburst\x0F"
                : $kind == 2 ? join('', map { chr rand 256 } 1 .. rand 60)
                : $kind == 3 ? "line\n"
                : $kind == 4 ? part(int rand 3, 'd' x rand 50)
                : pack 'C*', map { (0x0E, 0x0F, 0x10, 10, 13)[rand 5] } 1 .. rand 30;
        } 1 .. rand 20;
        for my $mixed (0, 1) {
            my $r = reader_of(
                $bytes,
                mixed_data_mode => $mixed,
                strict => $round % 2,
                read_size => 1 + rand 100,
                ($round % 3 ? () : (compression => 'zstd', keep_compressed => 1))
            );
            for (1 .. 500) {
                my @found = eval {
                    $mixed ? $r->get_line_burst_or_data(peek_line => $round % 5) : $r->read_message;
                };
                last if !@found && !$@;
                last if $@ && !ref $@ && $@ =~ /invalid state/ || ref $@;
                last if @found && $found[0] eq 'peek';
            }
            eval { $r->eof };
        }
    }
    pass('give values or exceptions');
};

done_testing;
