# The interface of Pipework::Atomic in one process: names, values, contexts, words of exceptions.
use strict;
use warnings;
use Test::More;
use Pipework::Atomic 0.026;

alarm 120;

my $class = 'Pipework::Atomic';

subtest 'constants' => sub {
    is($class->PIPE_BUF, 4096, 'as a method of the class');
    is(Pipework::Atomic::PIPE_BUF * 2, 8192, 'bare: its prototype takes nothing');
    is(prototype(\&Pipework::Atomic::PIPE_BUF), '', 'the prototype');
    is($class->HAVE_IO_SELECT, 1, 'HAVE_IO_SELECT');
    ok(!Pipework::Atomic::IS_WIN32, 'IS_WIN32');
    is(Pipework::Atomic::IN_BUFFER_SIZE, 'in_buffer_size', 'the key of a number that is to be read');
};

subtest 'versions' => sub {
    ok(eval { $class->VERSION('0.027'); 1 }, 'that of the original');
    ok(!eval { $class->VERSION('9.0'); 1 }, 'one that is too new');
    is($class->VERSION, $Pipework::VERSION, 'our own');
};

subtest 'a pair' => sub {
    my ($r, $w) = $class->pair;
    isa_ok($r, $class);
    isa_ok($w, $class);
    is_deeply([$r->is_reader, $r->is_writer], [1, undef], 'the first one reads');
    is_deeply([$w->is_reader, $w->is_writer], [undef, 1], 'the second one writes');
    is($w->PIPE_BUF, 4096, 'as a method of an object');
    ok(defined fileno $r->rh && !defined $r->wh, 'its handle');
    ok(defined fileno $w->wh && !defined $w->rh, 'its handle');
    is($w->wh, $w->{wh}, 'the hash has it, too');
    is($w->write_message('Hello'), 1, 'parts');
    is(scalar $r->read_message, 'Hello', 'a message');
    is($w->write_message(''), 1, 'an empty message is one part');
    is(scalar $r->read_message, '', 'and is a message');
    is($w->write_message('aa' x $w->PIPE_BUF), 3, '8192 bytes are three parts');
    is(scalar $r->read_message, 'aa' x 4096, 'whole');
    is($w->write_message(17), 1, 'a number is a text');
    is(scalar $r->read_message, '17', 'a text');
};

subtest 'nothing there' => sub {
    my ($r, $w) = $class->pair;
    $r->blocking(0);
    is_deeply([$r->read_message], [], 'an empty list');
    is(scalar $r->read_message, undef, 'undef');
    push my @messages, $r->read_message for 1 .. 3;
    is(@messages, 0, 'push puts nothing there');
    $w->write_message($_) for 'a' .. 'c';
    push @messages, $r->read_message for 1 .. 5;
    is_deeply(\@messages, ['a' .. 'c'], 'and what is there');
    $w->close;
    $r->blocking(1);
    is_deeply([$r->read_message], [], 'at the end an empty list');
    is(scalar $r->read_message, undef, 'or undef');
};

subtest 'debug' => sub {
    my ($r, $w) = $class->pair;
    $w->write_message('x' x 10_000);
    my @found = $r->read_message(debug => 1);
    is(@found, 1, 'one value');
    my $tid = delete $found[0]{tid};
    is_deeply($found[0], {message => 'x' x 10_000, parts => [2, 1, 0], pid => $$}, 'all about it');
    is("$$:$tid", $w->key, 'whose it is');
};

subtest 'eof, close' => sub {
    my ($r, $w) = $class->pair;
    $r->blocking(0);
    is($r->eof, 0, 'nothing there');
    $w->write_message('last');
    is($w->close, undef, 'closed');
    is($w->close, undef, 'twice');
    is($r->eof, 0, 'a message is there');
    is($r->read_message, 'last', 'which is read');
    is($r->eof, 1, 'the end');
    is_deeply([$w->wh, $w->is_writer], [undef, undef], 'nothing is left of the end');
    ok(!eval { $w->write_message('x'); 1 }, 'no end');
    like($@, qr/^Cannot call write on a pipe reader at \Q$0/, 'words');
    $r->close;
    ok(!eval { $r->read_message; 1 }, 'no end');
    like($@, qr/^Not a read handle at \Q$0/, 'words');
};

subtest 'the wrong end' => sub {
    my ($r, $w) = $class->pair;
    for my $method (qw(write_message write_burst fits_in_burst)) {
        ok(!eval { $r->$method('x'); 1 }, $method);
        like($@, qr/^Cannot call write on a pipe reader at \Q$0/, 'words');
    }
    for my $method (qw(read_message fill_buffer eof get_line_burst_or_data)) {
        ok(!eval { $w->$method; 1 }, $method);
        like($@, qr/^Not a read handle at \Q$0/, 'words');
    }
    ok(!eval { $r->get_line_burst_or_data; 1 }, 'the wrong mode');
    like($@, qr/^missing 'burst_prefix', not in mixed_data_mode at \Q$0/, 'words');
    is($r->pending_output, 0, 'a reader has nothing pending');
    is_deeply([$r->flush], [], 'and nothing to flush');
};

subtest 'settings' => sub {
    my ($r, $w) = $class->pair(read_size => 1000, use_io_select => 0, mine => 'kept');
    is($r->{mine}, 'kept', 'unknown options stay in the hash');
    is($r->read_size, 1000, 'read_size');
    is($r->read_size(70_000), 70_000, 'set');
    is($r->read_size, 70_000, 'read_size');
    is($r->use_io_select, 0, 'use_io_select');
    is($r->use_io_select(5), 1, 'set');
    my ($other) = $class->pair;
    is($other->read_size, 65_536, 'the default');
    is($other->use_io_select, 1, 'the default');
    is($other->blocking, 1, 'the default');
    is($other->blocking(0), 0, 'set');
    is($other->blocking, 0, 'blocking');
    is($other->read_blocking, 0, 'by its other name');
    is($other->write_blocking, undef, 'it has no such end');
};

subtest 'in_buffer_size' => sub {
    my ($r, $w) = $class->pair;
    is($r->{+Pipework::Atomic::IN_BUFFER_SIZE}, 0, 'nothing');
    $w->write_message('x' x 84);
    is($r->fill_buffer, 100, 'what came');
    is($r->{in_buffer_size}, 100, 'is there');
    $r->read_message;
    is($r->{in_buffer_size}, 0, 'and gone');
    ok(!exists $w->{in_buffer_size}, 'a writer has none');
};

subtest 'fill_buffer' => sub {
    my ($r, $w) = $class->pair;
    $r->blocking(0);
    is($r->fill_buffer, 0, 'nothing there');
    $w->write_message('abc');
    is($r->fill_buffer, 19, 'bytes');
    $w->close;
    $r->blocking(1);
    is($r->fill_buffer, 0, 'the end');
    is($r->eof, 0, 'there is something left');
    is($r->read_message, 'abc', 'a message');
    is($r->eof, 1, 'now it is the end');
};

subtest 'bursts' => sub {
    my ($r, $w) = $class->pair;
    is($w->fits_in_burst('x' x 4096), 4096, 'the largest');
    is($w->fits_in_burst('x' x 4097), undef, 'one more');
    is($w->fits_in_burst(''), 0, 'nothing at all');
    is($w->write_burst('x' x 4097), undef, 'too large');
    is(0 + $!, Errno::EMSGSIZE(), '$!');
    is($w->write_burst("plain\n"), 1, 'written');
    is(readline $r->rh, "plain\n", 'the bare bytes, and nothing of the other one');
};

subtest 'what $! was' => sub {
    $! = 7;
    my ($r, $w) = $class->pair;
    $w->write_message('x' x 10_000);
    $w->send_many(1, 2);
    $w->write_burst('');
    $r->read_message for 1 .. 3;
    $r->blocking(0);
    $r->read_message;
    $r->eof;
    $w->flush;
    $w->resize(8192);
    $r->clone_reader;
    $w->close;
    $r->read_message;
    undef $_ for $r, $w;
    is(0 + $!, 7, 'stays what it was where nothing failed');
};

subtest 'invocants' => sub {
    my ($r) = $class->pair;
    for my $method (qw(read_message write_message flush eof rh is_reader compression close blocking)) {
        for my $wrong ($class, {}, [], \1, 'x', bless({}, 'Other')) {
            my $code = $class->can($method);
            ok(
                !eval { $code->($wrong, $method =~ /write/ ? 1 : ()); 1 }
                    && $@ =~ /^Expected a Pipework::Atomic object at \Q$0/,
                "$method of " . (ref $wrong || $wrong)
            ) or diag $@;
        }
    }
    my ($left, $w) = $class->pair;
    $w->blocking(0);
    $w->write_message('x' x 100_000);
    undef $left;
    my @warnings;
    {
        local $SIG{__WARN__} = sub { push @warnings, @_; die "from a handler\n" };
        is(eval { $w->DESTROY; 1 }, 1, 'nothing dies, not even of a warning that does');
    }
    like("@warnings", qr/^\Q$class\E: pending messages are lost: Disconnected pipe$/, 'words');
    ok(!eval { $w->size; 1 }, 'it is destroyed');
    is(Pipework::Atomic::DESTROY($_), undef, 'nothing happens to others') for { }
    , [], 'x', undef;
    $r->DESTROY;
    ok(!eval { $r->read_message; 1 }, 'destroyed by hand');
    like($@, qr/^Attempted to use a destroyed Pipework::Atomic object/, 'words');
    $r->DESTROY;
    ok(!defined $r->{rh}, 'the handle is gone');
};

subtest 'subclasses' => sub {
    @Mine::ISA = $class;
    my ($r, $w) = Mine->pair(name => 'n');
    isa_ok($r, 'Mine');
    isa_ok($r->clone_reader, 'Mine');
    isa_ok(($w->pair)[0], 'Mine', 'called on an object');
    is($w->clone_writer->{name}, 'n', 'its own keys come along');
    {
        use utf8;
        no strict 'refs';
        @{"Café::ISA"} = $class;
        is(ref +(("Café")->pair)[0], "Café", 'a name that is no ASCII');
    }
};

done_testing;
