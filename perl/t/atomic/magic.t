# Arguments with magic: tied, overloaded, undef, wide, read-only; those that destroy the object.
use strict;
use warnings;
use Test::More;
use Pipework::Atomic;

alarm 120;

my $class = 'Pipework::Atomic';

# A scalar that counts how often it is read, and runs something.
package Counted {

    sub TIESCALAR {
        my ($class, $value, $code) = @_;
        bless {value => $value, code => $code, read => 0}, $class;
    }

    sub FETCH {
        my $self = shift;
        $self->{read}++;
        $self->{code}->() if $self->{code};
        $self->{value};
    }
    sub STORE { die 'unexpected assignment' }
}

package Text {
    use overload '""' => sub {
        my $self = shift;
        $self->{read}++;
        $self->{code}->() if $self->{code};
        $self->{value};
    };

    sub new {
        my ($class, $value, $code) = @_;
        bless {value => $value, code => $code, read => 0}, $class;
    }
}

sub warnings_of (&) {
    my ($code, @warnings) = @_;
    local $SIG{__WARN__} = sub { push @warnings, @_ };
    $code->();
    return @warnings;
}

my @writing = qw(write_message write_burst fits_in_burst send_many);

subtest 'fetched once' => sub {
    for my $method (@writing) {
        my ($r, $w) = $class->pair(mixed_data_mode => 1);
        tie my $tied, 'Counted', 'tied';
        $w->$method($tied);
        is(tied($tied)->{read}, 1, "$method: tied");
        my $text = Text->new('overloaded');
        $w->$method($text);
        is($text->{read}, 1, "$method: overloaded");
        my @found = map { [$r->get_line_burst_or_data]->[1] } 1 .. 2;
        is_deeply(\@found, ['tied', 'overloaded'], 'and sent') if $method ne 'fits_in_burst';
    }
    my ($r, $w) = $class->pair;
    tie my $false, 'Counted', 0;
    is($r->blocking($false), 0, 'a flag');
    is(tied($false)->{read}, 1, 'once');
    tie my $name, 'Counted', 'debug';
    $r->read_message($name, $false);
    is(tied($name)->{read}, 1, 'the name of an option');
    tie my $secs, 'Counted', 0;
    ok(!eval { $r->recv($secs); 1 } && $@->kind eq 'TimedOut', 'seconds');
    is(tied($secs)->{read}, 1, 'once');
};

subtest 'one that destroys the object' => sub {
    for my $method (@writing, qw(blocking resize)) {
        for my $how ('undef', 'DESTROY', 'close') {
            my ($r, $w) = $class->pair;
            my $end = sub { $how eq 'undef' ? undef $w : $w->$how };
            tie my $tied, 'Counted', 4096, $end;
            my $lived = eval { $w->$method($tied); 1 };
            my $words =
                $how ne 'close'
                ? 'Attempted to use a destroyed Pipework::Atomic object'
                : 'Cannot call write on a pipe reader';
            $how eq 'close' && $method =~ /blocking|resize/
                ? ok($lived, "$method, $how")
                : like($@, qr/^\Q$words\E/, "$method, $how");
            ($r, $w) = $class->pair;
            my %holder = (w => $w);
            undef $w;
            my $text = Text->new('x', sub { %holder = () });
            next if $method =~ /blocking|resize/;
            ok(!eval { $holder{w}->$method($text); 1 }, "$method, with its variable");
            like($@, qr/^Attempted to use a destroyed/, 'words');
        }
    }
    my ($r) = $class->pair;
    tie my $yes, 'Counted', 1, sub { undef $r };
    ok(!eval { $r->read_message(debug => $yes); 1 }, 'an option');
    like($@, qr/^Attempted to use a destroyed/, 'words');
};

# Puts others where those were that went.
my @others;
sub reuse { push @others, map { my $other = "other $_"; \$other } 1 .. 30; return }

subtest 'one that frees its neighbours' => sub {
    my ($r, $w) = $class->pair;
    my @messages = (undef, join('', 'tw', 'o'), join('', 'thr', 'ee'));
    tie $messages[0], 'Counted', 'one', sub { @messages = (); reuse() };
    is($w->send_many(@messages), 3, 'messages');
    is_deeply([map { scalar $r->read_message } 1 .. 3], [qw(one two three)], 'arrive');
    my @nobody = (undef, undef);
    tie $nobody[1], 'Counted', 1, sub { @nobody = (); reuse() };
    for my $code ($class->can('blocking'), $class->can('flush')) {
        ok(!eval { &$code(@nobody); 1 }, 'no object');
        like($@, qr/^Expected a Pipework::Atomic object/, 'words');
        @nobody = (undef, undef);
        tie $nobody[1], 'Counted', 1, sub { @nobody = (); reuse() };
    }
};

subtest 'a warning that frees the object' => sub {
    my %calls = (
        resize => ['8192x'],
        resize_or_max => ['8192x'],
        recv => ['0x'],
        next_item => ['0x'],
        read_size => ['1x'],
        _set_read_size => ['1x'],
        set_exact => ['1x'],
        _set_exact => ['1x'],
        _lend => ['-1x'],
        _set_zstd => ['3x', 'dictionary', 0],
        _write_to => ['0x', (undef) x 6],
    );
    for my $method (sort keys %calls) {
        my ($r) = $class->pair;
        my @stack = ($r, @{$calls{$method}});
        undef $r;
        local $SIG{__WARN__} = sub { @stack = (); reuse() };
        my $code = $class->can($method);
        eval { &$code(@stack) };
        unlike($@, qr/Expected a/, "$method: it was the object");
        is(@stack, 0, 'the warning came');
    }
};

subtest 'a dictionary whose path frees the object' => sub {
    my %reads = (read_message => 1, recv => 1, next_item => 1, eof => 1, fill_buffer => 1);
    for my $method (@writing, sort(keys %reads), 'key') {
        my ($r, $w) = $class->pair(compression => 'zstd');
        my @stack = ($reads{$method} ? $r : $w, $reads{$method} || $method eq 'key' ? () : 'x');
        my $path = Text->new($0, sub { @stack = (); reuse() });
        $stack[0]->set_compression_dictionary_file($path);
        $stack[0]->blocking(0);
        my $code = $class->can($method);
        push @stack, 0 if $method =~ /recv|next_item/;
        eval { &$code(@stack) };
        like($@, qr/^(?:$|atomic recv: the deadline)/, "$method: goes on");
        ok($path->{read}, 'the path was asked for');
    }
    my ($r, $w) = $class->pair(compression => 'zstd');
    my $text = 'before';
    $w->set_compression_dictionary_file(Text->new($0, sub { $text = undef; reuse() }));
    $r->set_compression_dictionary_file($0);
    is_deeply([warnings_of { $w->send_many($text, 'x') }], [], 'no warning');
    is($r->read_message, 'before', 'it cannot change the message');
};

subtest 'text' => sub {
    my ($r, $w) = $class->pair;
    for my $method (@writing) {
        ok(!eval { $w->$method("\x{263A}"); 1 }, 'characters over 255');
        like($@, qr/^Wide character in $method at \Q$0/, 'words');
    }
    my $latin = "\xE4";
    utf8::upgrade($latin);
    $w->write_message($latin);
    my $found = $r->read_message;
    is($found, "\xE4", 'the flag makes no difference');
    ok(!utf8::is_utf8($found), 'what comes out has none');
    ok(utf8::is_utf8($latin), 'what went in keeps it');
    ok(!eval { $w->send_many('a', "\x{263A}"); 1 }, 'one of several');
    $w->write_message('after');
    is($r->read_message, 'after', 'then none was sent');
};

subtest 'undef' => sub {
    my ($r, $w) = $class->pair;
    for my $method (@writing) {
        my @warnings = warnings_of { $w->$method(undef) };
        is(@warnings, 1, "$method: one warning");
        like($warnings[0], qr/^Use of uninitialized value/, 'the usual one');
        $r->read_message if $method =~ /message|many/;
    }
    my @warnings = warnings_of { $w->$_() for qw(compression rh key) };
    is(@warnings, 0, 'none elsewhere');
    ok(
        !eval {
            local $SIG{__WARN__} = sub { die "no\n" };
            $w->write_message(undef);
            1;
        },
        'a handler that dies'
    );
    is($@, "no\n", 'out of the call');
    ok(
        !eval {
            local $SIG{__WARN__} = sub { undef $w };
            $w->write_message(undef);
            1;
        },
        'or destroys'
    );
    like($@, qr/^Attempted to use a destroyed/, 'words');
};

subtest 'constants and shared buffers' => sub {
    my ($r, $w) = $class->pair;
    $w->write_message('constant');
    my $copy = my $text = $r->read_message;
    $copy .= '!';
    is($text, 'constant', 'each has its own');
    $w->write_message($_) for map { $_ x 3 } 1 .. 3;
    is_deeply([map { scalar $r->read_message } 1 .. 3], [111, 222, 333], 'temporaries');
    my $first = do { $w->write_message('a' x 10); $r->read_message };
    $w->write_message('b' x 10);
    $r->read_message;
    is($first, 'a' x 10, 'what came out stays');
};

subtest 'a tied object' => sub {
    my ($r, $w) = $class->pair;
    tie my $tied, 'Counted', $w;
    is($tied->write_message('x'), 1, 'is used as it is');
    is($r->read_message, 'x', 'and works');
};

done_testing;
