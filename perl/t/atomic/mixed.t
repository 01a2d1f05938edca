# Mixed data mode: lines, bursts and messages through one pipe.
use strict;
use warnings;
use POSIX ();
use Test::More;
use FindBin ();
use lib "$FindBin::Bin/..";
use Asleep;
use Processes;
use Pipework::Atomic;

alarm 120;

my $class = 'Pipework::Atomic';

# Prints as a process with this stdout does.
sub print_to { my ($w, @text) = @_; syswrite($w->wh, join '', @text) }

subtest 'the SYNOPSIS' => sub {
    my ($r, $w) = $class->pair(mixed_data_mode => 1);
    open(my $out, '>&', $w->{wh}) or die;
    $out->autoflush(1);
    my $data = 'd' x 10_000;
    print $out "A line!\n";
    print $out 'Start a line ...';
    is($w->write_burst("This is a burst message\n\n\n"), 1, 'a burst');
    is($w->write_message($data), 3, 'a message');
    print $out "... Finish the line we started earlier\n";
    is_deeply([$r->get_line_burst_or_data], [line => "A line!\n"]);
    is_deeply([$r->get_line_burst_or_data], [burst => "This is a burst message\n\n\n"]);
    is_deeply([$r->get_line_burst_or_data], [message => $data]);
    is_deeply([$r->get_line_burst_or_data], [line => "Start a line ...... Finish the line we started earlier\n"]);
    is_deeply([$r->get_line_burst_or_data], [], 'nothing is there');
    my ($type, $found) = $r->get_line_burst_or_data;
    is_deeply([$type, $found], [undef, undef], 'two times undef');
};

subtest 'context' => sub {
    my ($r, $w) = $class->pair(mixed_data_mode => 1);
    print_to($w, "a line\n");
    is(scalar $r->get_line_burst_or_data, "a line\n", 'the last value');
    is(scalar $r->get_line_burst_or_data, undef, 'nothing');
};

subtest 'control bytes' => sub {
    my ($r, $w) = $class->pair(mixed_data_mode => 1);
    is($w->fits_in_burst('x'), 3, 'the delimiters count');
    is($w->fits_in_burst('x' x 4094), 4096, 'the largest');
    is($w->fits_in_burst('x' x 4095), undef, 'one more');
    is($w->write_burst('x' x 4095), undef, 'is not written');
    for my $bytes ("a\x0Fb", "a\x0Eb", "\x10a") {
        ok(!eval { $w->write_burst($bytes); 1 }, 'write_burst of control bytes dies');
        like($@, qr/^A burst cannot hold the bytes 0x0E and 0x0F, or begin with 0x10/, 'words');
    }
    my $any = join '', map { chr } 0 .. 255, reverse 0 .. 255;
    is($w->write_message($any), 1, 'a message has any');
    is($w->write_burst("a\x10"), 1, 'behind the first byte it may stand');
    is_deeply([$r->get_line_burst_or_data], [message => $any]);
    is_deeply([$r->get_line_burst_or_data], [burst => "a\x10"]);
    is($w->write_message('aa' x 4096), 3, '8192 bytes are three parts here, too');
    print_to($w, "vt\x0E100\n");
    is_deeply([$r->get_line_burst_or_data], [message => 'aa' x 4096]);
    $w->close;
    is_deeply([$r->get_line_burst_or_data], [line => "vt\x0E100\n"], 'stray control bytes are text');
};

subtest 'peek_line' => sub {
    my ($r, $w) = $class->pair(mixed_data_mode => 1);
    is_deeply([$r->get_line_burst_or_data(peek_line => 1)], [], 'nothing');
    print_to($w, '0');
    is_deeply([$r->get_line_burst_or_data], [], 'not a line yet');
    is_deeply([$r->get_line_burst_or_data(peek_line => 1)], [peek => '0'], 'a false text, too');
    is_deeply([$r->get_line_burst_or_data(peek_line => 1)], [peek => '0'], 'as often as asked');
    is_deeply([$r->get_line_burst_or_data(peek_line => 0)], [], 'only if asked');
    print_to($w, '12');
    is_deeply([$r->get_line_burst_or_data(peek_line => 1)], [peek => '012'], 'with what came since');
    $w->write_burst('burst');
    is_deeply([$r->get_line_burst_or_data(peek_line => 1)], [burst => 'burst'], 'what is whole goes first');
    print_to($w, "3\nrest");
    is_deeply([$r->get_line_burst_or_data(peek_line => 1)], [line => "0123\n"], 'a line');
    is_deeply([$r->get_line_burst_or_data(peek_line => 1)], [peek => 'rest'], 'the next one');
    $w->close;
    is($r->eof, 0, 'a line is left');
    is_deeply([$r->get_line_burst_or_data(peek_line => 1)], [line => 'rest'], 'given out at the end');
    is_deeply([$r->get_line_burst_or_data(peek_line => 1)], [], 'once');
    is($r->eof, 1, 'the end');
};

subtest 'ends of lines' => sub {
    my ($r, $w) = $class->pair(mixed_data_mode => 1);
    print_to($w, "a\nb\r\nc\rd\n\n");
    my @lines;
    while (my ($type, $line) = $r->get_line_burst_or_data) { push @lines, $line }
    is_deeply(\@lines, ["a\n", "b\r\n", "c\r", "d\n", "\n"], 'each with its own');
};

subtest 'blocking' => sub {
    my ($r, $w) = $class->pair(mixed_data_mode => 1);
    is($r->blocking, 0, 'a mixed reader does not');
    is($w->blocking, 1, 'a writer does');
    $r->blocking(1);
    my $pid = child {
        $r->close;
        until_asleep;
        print_to($w, "late\n");
        0;
    };
    is_deeply([$r->get_line_burst_or_data], [line => "late\n"], 'get_line_burst_or_data waits with blocking(1)');
    waitpid $pid, 0;
    print_to($w, 'prompt> ');
    is_deeply([$r->get_line_burst_or_data(peek_line => 1)], [peek => 'prompt> '], 'but not for the end of a line');
};

subtest 'switched on later' => sub {
    my ($r, $w) = $class->pair;
    $w->write_message('plain');
    is($r->read_message, 'plain');
    is_deeply([$r->set_mixed_data_mode], [], 'nothing comes back');
    $w->set_mixed_data_mode;
    is($r->blocking, 0, 'no longer');
    is($w->blocking, 1, 'still');
    $r->blocking(1);
    $r->set_mixed_data_mode for 1 .. 2;
    is($r->blocking, 0, 'once more');
    $w->write_message('mixed');
    is_deeply([$r->get_line_burst_or_data], [message => 'mixed']);
    is_deeply([$r->{mixed_data_mode}, $w->{mixed_data_mode}], [1, 1], 'the hashes tell');
    ok(!eval { $r->read_message; 1 }, 'not for mixed data');
    like($@, qr/^Cannot call read_message in mixed_data_mode/, 'words');
};

subtest 'what is pending goes first' => sub {
    my ($r, $w) = $class->pair;
    $w->blocking(0);
    $w->resize(4096);
    my $pid = child {
        $w->close;
        my @found = (length $r->read_message, length $r->read_message);
        $r->set_mixed_data_mode;
        $r->blocking(1);
        push @found, $r->get_line_burst_or_data;
        "@found" eq '50000 50000 message mixed' ? 0 : 1;
    };
    $r->close;
    $w->write_message('x' x 50_000) for 1 .. 2;
    $w->set_mixed_data_mode;
    is($w->pending_output, 0, 'all is written');
    $w->write_message('mixed');
    is(status($pid), 0, 'and read in its mode');
};

subtest 'programs that print binary' => sub {
    my ($r, $w) = $class->pair(mixed_data_mode => 1);
    my $pid = fork // die;
    if (!$pid) {
        open(STDOUT, '>&', $w->{wh}) or die;
        $r->close;
        exec $^X, '-e', '$| = 1; print "from a program\n"; print STDOUT "no end"' or die;
    }
    waitpid $pid, 0;
    $w->write_message('between');
    $w->close;
    my @found;
    until ($r->eof) {
        while (my @item = $r->get_line_burst_or_data) { push @found, "@item" }
    }
    is_deeply(\@found, ["line from a program\n", 'message between', 'line no end'], 'all of it');
};

done_testing;
