# No memory and no descriptor grows over many operations.
use strict;
use warnings;
use FindBin ();
use lib "$FindBin::Bin/..";
use Leaks;
use Test::More;
use Pipework::Atomic;

alarm 120;

my $class = 'Pipework::Atomic';

local $SIG{__WARN__} = sub { };
my ($r, $w) = $class->pair;
leaves_nothing('messages', 100_000, sub { $w->write_message('x' x 100); $r->read_message });
leaves_nothing('debug', 50_000, sub { $w->write_message('x' x 100); $r->read_message(debug => 1) });
leaves_nothing('long ones', 1000, sub { $w->write_message('x' x 50_000); $r->recv });
leaves_nothing('many', 20_000, sub { $w->send_many(1 .. 5); $r->read_message for 1 .. 5 });
leaves_nothing('settings', 100_000, sub {
    $r->blocking(1);
    $r->size;
    my $size = $r->{in_buffer_size};
    $w->pending_output;
    $w->key;
    $r->rh;
});
leaves_nothing('exceptions', 50_000, sub {
    eval { $r->recv(0) };
    eval { $r->write_message(1) };
    eval { $w->write_message("\x{100}") }
});
$r->blocking(0);
leaves_nothing('nothing there', 100_000, sub { $r->read_message; $r->eof; $r->fill_buffer });
leaves_nothing('a pair', 5000, sub { $class->pair });
leaves_nothing(
    'both ends and clones',
    2000, sub { my $p = $class->new; $p->clone_writer; $p->clone_reader->blocking(0); $p->reader }
);
leaves_nothing('constructors that fail', 5000, sub {
    eval { $class->pair(compression => 'zstd', compression_level => 99) };
    eval { $class->from_fd('<&', 999) }
});
leaves_nothing('losses', 5000, sub {
    my ($r, $w) = $class->pair(on_torn => sub { });
    syswrite $w->wh, pack('l l L L', 4242, 7, 2, 3) . 'abc';
    $w->close;
    $r->read_message;
    $r->torn;
});
leaves_nothing('a handler that dies', 2000, sub {
    my ($r, $w) = $class->pair;
    eval { tie my $bad, 'Dies'; $w->write_message($bad) };
    eval { $w->send_many('x', $w) };
});
my ($mr, $mw) = $class->pair(mixed_data_mode => 1, compression => 'zstd', keep_compressed => 1);
leaves_nothing('mixed', 20_000, sub {
    $mw->write_burst('burst');
    $mw->write_message('x' x 1000);
    syswrite $mw->wh, "line\nrest";
    $mr->get_line_burst_or_data(peek_line => 1) for 1 .. 4;
    syswrite $mw->wh, "\n";
    $mr->next_item;
});
leaves_nothing('dictionaries', 500, sub {
    $_->set_compression_dictionary('x' x 1000 . rand) for $mr, $mw;
    $_->set_compression_dictionary(undef) for $mr, $mw;
});
leaves_nothing('pinned objects', 50_000, sub { my $text = \1; $w->fits_in_burst($text) });

package Dies;
sub TIESCALAR { return bless {}, shift }
sub FETCH { die "no\n" }

package main;
done_testing;
