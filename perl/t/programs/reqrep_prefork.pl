# Workers in several processes share one queue; clients keep many requests in flight; one client
# dies in the middle, and its slots come back.
use strict;
use warnings;
use Data::ReqRep::Shared;
use File::Temp qw(tempdir);

alarm 10;
my $folder = tempdir(CLEANUP => 1);
my ($WORKERS, $CLIENTS, $REQUESTS, $WINDOW) = (3, 3, 3000, 16);
my $path = "$folder/work.shm";
my $srv = Data::ReqRep::Shared->new($path, 256, 128, 512, 256 * 1024);

sub child {
    my ($code) = @_;
    my $pid = fork;
    die "fork: $!" if !defined $pid;
    return $pid if $pid;
    alarm 10;
    $code->();
    exit 0;
}

sub answer {
    my ($request) = @_;
    my ($client, $number) = split /:/, $request;
    return "$client:" . $number * $number;
}

# Each worker takes its requests in another way.
my @take = (
    sub { $srv->recv_wait_multi(8, 0.5) },
    sub { $srv->recv_wait(0.5) },
    sub { my @all = $srv->drain(4); @all ? @all : $srv->recv_wait(0.5) },
);
my @workers = map {
    my $take = $take[$_];
    child(sub {
        my $stop;
        until ($stop) {
            my @pairs = $take->();
            while (my ($request, $id) = splice @pairs, 0, 2) {
                $stop++ if $request eq 'stop';
                my $out = $request eq 'stop' ? 'bye' : answer($request);
                $srv->reply($id, $out) or die "no reply to $request\n";
            }
        }
    });
} 0 .. $WORKERS - 1;

my @clients = map {
    my $client = $_;
    child(sub {
        my $cli = Data::ReqRep::Shared::Client->new($path);
        my ($sent, @flight) = (0);
        while ($sent < $REQUESTS || @flight) {
            while ($sent < $REQUESTS && @flight < $WINDOW) {
                $sent++;
                my $id = $cli->send_wait("$client:$sent:" . 'p' x ($sent % 700), 5);
                die "request $sent was not taken\n" if !defined $id;
                push @flight, [$sent, $id];
            }
            my ($number, $id) = @{shift @flight};
            my $got = $cli->get_wait($id, 5);
            die "no answer to $number\n" if !defined $got;
            die "answer to $number: $got\n" if $got ne "$client:" . $number * $number;
        }
        die "pending: " . $cli->pending . "\n" if $cli->pending;
    });
} 1 .. $CLIENTS;
for my $pid (@clients) {
    waitpid $pid, 0;
    die "a client ended with $?\n" if $?;
}

my $cli = Data::ReqRep::Shared::Client->new($path);
my @stops = map { $cli->send('stop') } @workers;
# A worker that takes a batch may get more than one of them.
my $left = @workers;
for my $id (@stops) {
    my $bye = $cli->get_wait($id, 3);
    die "bye: $bye\n" if defined $bye && $bye ne 'bye';
}
my $deadline = time + 3;
while ($left) {
    my $pid = waitpid -1, 1;
    if ($pid > 0) {
        die "a worker ended with $?\n" if $?;
        $left--;
        next;
    }
    die "workers do not end\n" if time > $deadline;
    select undef, undef, undef, 0.05;
    # A client without a reply needs another call.
    $cli->req_wait('stop', 0.3) if $left;
}
$srv->clear;
die "not empty after clear\n" if !$srv->is_empty;
my $stats = $srv->stats;
die "stats: no arena_used\n" if !defined $stats->{arena_used};
$srv->unlink;

# A client that is killed with all the slots in its hand.
my $small = Data::ReqRep::Shared->new("$folder/small.shm", 64, 4, 64);
my $dead = child(sub {
    my $other = Data::ReqRep::Shared::Client->new("$folder/small.shm");
    defined $other->send("orphan $_") or die for 1 .. 4;
    kill 'KILL', $$;
});
waitpid $dead, 0;
$cli = Data::ReqRep::Shared::Client->new("$folder/small.shm");
my $id = $cli->send_wait('alive', 4);
die "the slots of the dead did not come back\n" if !defined $id;
while (my ($request, $from) = $small->recv) {
    my $ok = $small->reply($from, uc $request);
    die "reply to the living\n" if $request eq 'alive' && !$ok;
}
die "the living\n" if $cli->get_wait($id, 2) ne 'ALIVE';
$small->unlink;
print "done\n";
