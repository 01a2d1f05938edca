# Memory and descriptors over 10^5 of each operation.
use strict;
use warnings;
use FindBin ();
use lib "$FindBin::Bin/..";
use Leaks;
use Test::More;
use Pipework::ReqRep;

alarm 120;

my $srv = Pipework::ReqRep->new(undef, 64, 8, 256);
my $cli = Pipework::ReqRep::Client->new_from_fd($srv->memfd);
my $int = Pipework::ReqRep::Int->new(undef, 64, 8);
my $one = Pipework::ReqRep::Int::Client->new_from_fd($int->memfd);
$srv->eventfd;
$cli->req_eventfd_set($srv->fileno);
my ($text, $dot) = ("\x{263a} text", '.');
my $dies = bless sub { die "argument\n" }, 'Dies';
{ package Dies; use overload '""' => sub { $_[0]->() }, fallback => 1; }

my %operations = (
    'send, recv, reply, get' => sub {
        my $id = $cli->send($text);
        $srv->reply(scalar $srv->recv, $text);
        $cli->get($id);
    },
    'numbers' => sub {
        my $id = $one->send(-7);
        my ($n, $got) = $int->recv_wait(1);
        $int->reply($got, $n);
        $one->get_wait($id, 1);
    },
    'batches' => sub {
        my @ids = map { $cli->send($_) } 1 .. 3;
        my %taken = reverse $srv->recv_wait_multi(5, 0);
        $srv->reply($_, 'x') for keys %taken;
        $cli->get($_) for @ids;
    },
    'recv_any, fail and its reason' => sub {
        $cli->send($text);
        $srv->fail(scalar $srv->recv, $text);
        my ($response, $id) = $cli->recv_any(0);
        my $why = Pipework::reason() . Pipework::error();
    },
    'cancel' => sub { $cli->cancel($cli->send('x')) },
    'forget' => sub { $cli->forget(my $id = $cli->send('x')); $srv->reply(scalar $srv->recv, 'x') },
    'time-outs' => sub { $cli->req_wait('x', 0); $srv->recv_wait(0); $cli->get(7) },
    'exceptions' => sub { eval { $cli->call('x', 0) } },
    'croaks' => sub {
        eval { $cli->send('x' x 20_000) };
        eval { $cli->get(1 << 23) };
        eval { $srv->reply(1, $dies) };
        eval { $cli->req_wait($dies, 1) };
    },
    'eventfds' => sub { $cli->notify; $srv->eventfd_consume },
    'streams' => sub {
        my $stream = $cli->stream($text);
        my $id = $srv->recv;
        $srv->part($id, $text);
        $stream->next;
        $srv->reply($id, '');
        $stream->next;
    },
    'blobs' => sub {
        my $draft = $cli->blob(100);
        $draft->write(0, $dot);
        my $blob = $draft->freeze;
        my $map  = $blob->map;
        my $id = $cli->send('x', blobs => [$blob, $blob]);
        my $got = $srv->recv;
        $srv->reply($got, 'x', blobs => [$srv->blobs($got)]);
        my @blobs = $cli->get_message($id)->blobs;
        my $part = $blobs[0]->substr(1, 2) . $blobs[1]->bytes . ${$blobs[0]->map};
    },
    'blobs in croaks' => sub {
        my ($draft, $blob) = ($srv->blob(3), $srv->blob_from($dot));
        eval { $draft->write(0, 'four') };
        eval { $cli->send('x', blobs => [$blob, $draft]) };
        eval { $cli->send('x' x 20_000, blobs => [$blob]) };
        eval { $srv->blobs(1) };
        $cli->send('x', blobs => [($blob) x 9]);
    },
    'dropped streams' => sub { my $stream = $cli->stream('x', 1); eval { $stream->next(0) } },
    'facts' => sub { my @all = map { $srv->$_ } qw(stats audit geometry members path) },
);
# Operations that make files or threads are slower; fewer of them show a leak as well.
my %slow = (
    'objects' => sub { my @ends = map { $_->new_from_fd($srv->memfd) } $cli, $srv },
    'members' => sub { my $new = $cli->new_from_fd($srv->memfd); $new->cancel($new->send('x')) },
    'blobs of new files' => sub {
        my $new = Pipework::ReqRep->create(slots => 2, blob_pool => 0);
        my $map = $new->blob_from('x' x 10_000)->map;
    },
    'segments' => sub { Pipework::ReqRep->new(undef, 8, 2, 32) },
    'failed constructors' => sub {
        eval { Pipework::ReqRep::Client->new('/none/at/all') };
        eval { Pipework::ReqRep::Int::Client->new_from_fd($srv->memfd) };
        eval { Pipework::ReqRep->new(undef, 1, 0, 1) };
    },
);
for my $set ([100_000, \%operations], [2_000, \%slow]) {
    my ($times, $of) = @$set;
    for my $name (sort keys %$of) {
        leaves_nothing($name, $times, $of->{$name});
        $srv->drain;
    }
}
done_testing;
