# Compressed messages and bursts, with and without a dictionary.
use strict;
use warnings;
use Test::More;
use File::Temp qw(tempdir);
use Pipework::Atomic;

alarm 120;

my $class = 'Pipework::Atomic';
my $dir = tempdir(CLEANUP => 1);
my $json = '{"event":"login","user":"somebody","address":"192.0.2.1","ok":true}';

sub file {
    my ($name, $bytes) = @_;
    open my $fh, '>:raw', "$dir/$name" or die;
    print $fh $bytes;
    close $fh;
    "$dir/$name";
}

subtest 'messages' => sub {
    my ($r, $w) = $class->pair(compression => 'zstd');
    is($w->write_message('x' x 100_000), 1, 'one part of what were 25');
    is($r->read_message, 'x' x 100_000, 'whole');
    is($w->write_message(''), 1, 'nothing');
    is(scalar $r->read_message, '', 'is a message');
    my $noise = join '', map { chr rand 256 } 1 .. 20_000;
    is($w->write_message($noise), 5, 'what cannot be compressed');
    is($r->read_message, $noise, 'whole');
};

subtest 'bursts' => sub {
    my ($r, $w) = $class->pair(compression => 'zstd', mixed_data_mode => 1);
    ok($w->fits_in_burst('x' x 100_000) < 100, 'what fits is what is left of it');
    is($w->write_burst('x' x 100_000), 1, 'a long one');
    is($w->write_burst("\x0E\x0F\x10"), 1, 'any bytes');
    $w->write_message('message');
    syswrite $w->wh, "text is not compressed\n";
    is_deeply([$r->get_line_burst_or_data], [burst => 'x' x 100_000]);
    is_deeply([$r->get_line_burst_or_data], [burst => "\x0E\x0F\x10"]);
    is_deeply([$r->get_line_burst_or_data], [message => 'message']);
    is_deeply([$r->get_line_burst_or_data], [line => "text is not compressed\n"]);
};

subtest 'accessors' => sub {
    my ($r, $w) = $class->pair;
    is($r->$_, undef, $_)
        for qw(compression compression_level compression_dictionary compression_dictionary_file);
    is($r->keep_compressed, 0, 'keep_compressed');
    ($r, $w) = $class->pair(compression => 'zstd');
    is($w->compression, 'zstd', 'set');
    is($w->compression_level, undef, 'not given, 3 is used');
    ($r, $w) = $class->pair(
        compression => 'zstd',
        compression_level => 7,
        compression_dictionary => 'abc',
        keep_compressed => 1
    );
    is_deeply([$w->compression_level, $w->compression_dictionary, $w->keep_compressed], [7, 'abc', 1], 'all set');
    is_deeply([$w->set_compression('zstd')], [], 'nothing comes back');
    is($w->compression_level, 7, 'without a level the one before stays');
    $w->set_compression('zstd', -3);
    is($w->compression_level, -3, 'another');
    $w->set_compression(undef);
    is_deeply(
        [$w->compression, $w->compression_level, $w->compression_dictionary],
        [undef, undef, 'abc'],
        'the dictionary stays'
    );
    $w->set_compression('zstd');
    $w->write_message($json);
    is($r->read_message, $json, 'and is used');
};

subtest 'what is refused' => sub {
    my %words = (
        "Unknown compression algorithm 'gzip'" => [compression => 'gzip'],
        "Unknown compression algorithm ''" => [compression => ''],
        'compression_dictionary and compression_dictionary_file are mutually exclusive' =>
            [
            compression => 'zstd',
            compression_dictionary => 'a',
            compression_dictionary_file => 'b'
            ],
        'compression_dictionary requires compression to be enabled' =>
            [compression_dictionary => 'a'],
    );
    for my $words (sort keys %words) {
        for my $method (qw(pair new)) {
            ok(!eval { $class->$method(@{$words{$words}}); 1 }, "$method: $words");
            like($@, qr/^\Q$words\E at \Q$0/, 'words');
        }
    }
    for my $method (qw(pair new)) {
        ok(!eval { $class->$method(compression_dictionary_file => 'a'); 1 }, "$method: a file alone");
        like($@, qr/^compression_dictionary requires compression to be enabled at \Q$0/,
            'words, which the original has for the file as well');
    }
    my ($r) = $class->pair;
    ok(!eval { $r->set_compression('lz4'); 1 }, 'later');
    like($@, qr/^Unknown compression algorithm 'lz4' at \Q$0/, 'words');
    is($r->compression, undef, 'nothing was set');
    my ($r2, $w2) = $class->pair(compression => 'zstd', compression_level => 5);
    ok(!eval { $w2->set_compression('zstd', 23); 1 }, 'no level');
    is($w2->compression_level, 5, 'the one before stays');
    ok(!eval { $class->pair(compression => 'zstd', compression_level => 23); 1 }, 'no level');
    isa_ok($@, 'Pipework::Error');
};

subtest 'keep_compressed' => sub {
    my %options = (compression => 'zstd', keep_compressed => 1);
    my ($r, $w) = $class->pair(%options);
    $w->write_message($json) for 1 .. 4;
    my ($message, $compressed) = $r->read_message;
    is($message, $json, 'the message');
    is(substr($compressed, 0, 4), "\x28\xB5\x2F\xFD", 'and the frame that it came in');
    is(scalar $r->read_message, $json, 'in scalar context the message');
    my $debug = $r->read_message(debug => 1);
    is_deeply([@$debug{qw(message compressed)}], [$json, $compressed], 'debug has both');
    $r->set_keep_compressed(0);
    is_deeply([$r->read_message], [$json], 'no longer');
    is($r->keep_compressed, 0, 'keep_compressed');
    ($r, $w) = $class->pair(%options, mixed_data_mode => 1);
    $w->write_message($json);
    $w->write_burst('b');
    syswrite $w->wh, "l\nrest";
    is_deeply([$r->get_line_burst_or_data], [message => $json, compressed => $compressed], 'a message');
    my ($type, $data, $key, $raw) = $r->get_line_burst_or_data;
    is_deeply([$type, $data, $key, length $raw], ['burst', 'b', 'compressed', length $raw], 'a burst');
    is_deeply([$r->get_line_burst_or_data], [line => "l\n"], 'a line');
    is_deeply([$r->get_line_burst_or_data(peek_line => 1)], [peek => 'rest'], 'the beginning of one');
    $w->write_message($json);
    is(scalar $r->get_line_burst_or_data, $compressed, 'in scalar context the last value');
    ($r, $w) = $class->pair(keep_compressed => 1);
    $w->write_message($json);
    is_deeply([$r->read_message], [$json], 'nothing without compression');
};

subtest 'dictionaries' => sub {
    my $dictionary = join ',', map { $json =~ s/somebody/$_/r } qw(alice bob carol);
    my $path = file(dictionary => $dictionary);
    my ($plain) = ($class->pair(compression => 'zstd', mixed_data_mode => 1))[1];
    my $without = $plain->fits_in_burst($json);
    for my $how ([compression_dictionary => $dictionary], [compression_dictionary_file => $path]) {
        my ($r, $w) = $class->pair(compression => 'zstd', @$how, mixed_data_mode => 1);
        ok($w->fits_in_burst($json) < $without - 20, "$how->[0] makes it short");
        $w->write_message($json);
        $w->write_burst($json);
        is_deeply([$r->get_line_burst_or_data], [message => $json]);
        is_deeply([$r->get_line_burst_or_data], [burst => $json]);
    }
    my ($r, $w) = $class->pair(compression => 'zstd', compression_dictionary => $dictionary);
    $r->set_compression_dictionary_file($path);
    is_deeply(
        [$r->compression_dictionary, $r->compression_dictionary_file],
        [undef, $path],
        'setting one clears the other'
    );
    $w->write_message($json);
    is($r->read_message, $json, 'the same bytes');
    $r->set_compression_dictionary($dictionary);
    is_deeply([$r->compression_dictionary, $r->compression_dictionary_file], [$dictionary, undef], 'either way');
    $_->set_compression_dictionary(undef) for $r, $w;
    $w->write_message($json);
    is($r->read_message, $json, 'none');
    $r->set_compression_dictionary('another one');
    $w->set_compression_dictionary($dictionary);
    $w->write_message($json) for 1 .. 2;
    ok(!eval { $r->read_message; 1 }, 'a wrong one is noticed');
    like($@, qr/^zstd decompression failed/, 'words');
    $r->set_compression_dictionary($dictionary);
    is($r->read_message, $json, 'the next one is good');
};

subtest 'a file that cannot be read' => sub {
    my ($r, $w) = $class->pair(compression => 'zstd', compression_dictionary_file => "$dir/none");
    for my $call (
        sub { $w->write_message('x') }, sub { $w->fits_in_burst('x') },
        sub { $w->write_burst('x') },
        sub { $r->read_message }, sub { $r->eof }
        )
    {
        ok(!eval { $call->(); 1 }, 'read when it is needed');
        like($@, qr/^Could not read the compression dictionary '\Q$dir\E\/none': No such file/, 'words');
    }
    file(none => 'now it is there');
    $w->write_message('x');
    is($r->read_message, 'x', 'then it is read');
};

subtest 'clones' => sub {
    my $path = file(clone => 'user somebody');
    my $p = $class->new(compression => 'zstd', compression_dictionary_file => $path, keep_compressed => 1);
    my ($r, $w) = ($p->clone_reader, $p->clone_writer);
    $w->write_message('user somebody');
    my @found = $r->read_message;
    is(@found, 2, 'compressed data is kept');
    is($found[0], 'user somebody', 'the same dictionary');
};

subtest 'one side only' => sub {
    my ($r, $w) = $class->pair;
    $w->set_compression('zstd');
    $w->write_message('x');
    ok(!eval { $r->read_message; 1 }, 'compressed');
    like($@, qr/^A message of writer \d+:\d+ is compressed, and compression is not set here/, 'words');
    $w->set_compression(undef);
    $r->set_compression('zstd');
    $w->write_message('x');
    ok(!eval { $r->read_message; 1 }, 'not compressed');
    like($@, qr/^zstd decompression failed/, 'words');
    $w->set_compression('zstd');
    $w->write_message('both');
    is($r->read_message, 'both', 'the next one is good');
};

subtest 'a frame that nothing vouches for' => sub {
    my %dictionary = (compression_dictionary => join ',', 1 .. 200);
    for my $accepts (0, 1) {
        my ($r, $w) = $class->pair(compression => 'zstd');
        my $with = $class->from_fh('<&', $r->rh, compression => 'zstd', %dictionary,
            accept_unchecked => $accepts);
        $w->write_message('from Atomic::Pipe');
        my @read = eval { $with->read_message };
        is_deeply(\@read, $accepts ? ['from Atomic::Pipe'] : [], "accept_unchecked => $accepts");
        $accepts
            ? is($@, '', 'without an error')
            : like($@, qr/^zstd decompression failed .*: with a dictionary, accept_unchecked => 1 /,
                'says the error');
    }
};

done_testing;
