# Files of segments, byte by byte: the valid ones with their contents, and the refusals of the
# others.
use strict;
use warnings;
use File::Temp qw(tempdir);
use FindBin ();
use lib "$FindBin::Bin/..";
use Checkout;
use JSON::PP qw(decode_json);
use Test::More;
use Pipework::ReqRep;

alarm 120;
my $checkout = checkout() // plan skip_all => 'vectors/reqrep is in the repository';
my $vectors = "$checkout/vectors/reqrep";

my $folder = tempdir(CLEANUP => 1);

# The file of a vector: its first bytes, zeros, and its last eight.
sub made {
    my ($vector) = @_;
    my $path = "$folder/$vector->{name}";
    open my $out, '>:raw', $path or die $!;
    chmod 0600, $path;
    print $out slurp("$vectors/$vector->{name}.bin");
    $out->flush;
    truncate $out, $vector->{len} or die $!;
    if ($vector->{end}) {
        seek $out, $vector->{len} - 8, 0;
        print $out pack 'H*', $vector->{end};
    }
    close $out or die $!;
    return $path;
}

my $index = decode_json(slurp("$vectors/index.json"));
my $here  = pack('S', 1) eq pack('v', 1) ? 'little' : 'big';
plan skip_all => "the vectors are $index->{byte_order}-endian" if $index->{byte_order} ne $here;

for my $vector (@{$index->{vectors}}) {
    my $name   = $vector->{name};
    my $path   = made($vector);
    my $class  = 'Pipework::ReqRep';
    my $client = eval { "${class}::Client"->new($path) };
    if ($vector->{refused}) {
        is($client, undef, "$name: refused");
        like($@, qr/\Q: $path: \E.*\Q$vector->{refused}\E/, "$name: and how");
        is(-s $path, $vector->{len}, "$name: it stays as it was");
        my @sizes = (8, 4, 64);
        if ($vector->{len}) {
            ok(!eval { $class->new($path, @sizes); 1 }, "$name: new refuses it, too");
            is(-s $path, $vector->{len}, "$name: and overwrites nothing");
        } else {
            ok(eval { $class->new($path, @sizes) }, "$name: new takes it as new");
        }
        unlink $path;
        next;
    }
    ok($client, "$name: opens") or diag($@), next;
    is_deeply($client->geometry, {%{$vector->{opens}}, integers => 0}, "$name: its sizes");
    my $server = $class->new($path, 1, 1, 1);
    if (my $wanted = $vector->{stats}) {
        my $stats = $server->stats;
        is_deeply({map { $_ => $stats->{$_} } keys %$wanted}, $wanted, "$name: stats");
    }
    for my $step (qw(audit recovered audit_after)) {
        next if !exists $vector->{$step};
        if ($step eq 'recovered') {
            is($server->recover, $vector->{recovered}, "$name: recovered");
            next;
        }
        next if !defined $vector->{$step};
        my $audit  = $server->audit;
        my $wanted = $vector->{$step};
        delete $audit->{$_} for grep { !defined $wanted->{$_} } keys %$wanted;
        $wanted = {map { $_ => $wanted->{$_} } grep { defined $wanted->{$_} } keys %$wanted};
        is_deeply($audit, $wanted, "$name: $step");
    }
    next if !exists $vector->{recv};
    my $wanted = $vector->{recv};
    my ($data, $id) = $server->recv;
    if (!ref $wanted) {
        is($data, undef, "$name: no request");
        is(Pipework::error() + 0, $wanted ? 10 : 1, "$name: because it is " . ($wanted // 'empty'));
        next;
    }
    is($data, $wanted->{data}, "$name: a request");
    is($server->redeliveries($id), $wanted->{redeliveries}, "$name: redeliveries");
    is(utf8::is_utf8($data) ? 1 : 0, $wanted->{flags} & 1, "$name: its flag");
    $! = 0;
    $server->reply($id, 'done');
    is($! + 0, 0, "$name: its reply succeeds");
}
# The smallest segment has a place for one member only.
{
    my ($smallest) = grep { $_->{name} eq 'smallest' } @{$index->{vectors}};
    my $path   = made($smallest);
    my $server = Pipework::ReqRep->new($path, 1, 1, 1);
    my $client = Pipework::ReqRep::Client->new($path);
    is($server->recv, undef, 'a server takes the only place');
    is($client->$_('', 0.01), undef, "$_ without a place") for qw(req_wait send_wait);
    ok($!{EUSERS}, 'and $! says so');
    ok(!eval { $client->doorbell; 1 } && $@->errno == $!{EUSERS}, 'a doorbell');
    undef $server;
    my $id = $client->send('');
    ok($id, 'there is a place again');
    my $late = Pipework::ReqRep->new($path, 1, 1, 1);
    is_deeply([$late->recv_wait(0.01)], [], 'and none for a server');
    ok($!{EUSERS}, '$! is EUSERS at once');
}
done_testing;
