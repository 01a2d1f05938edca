# The corners: eventfds made before fork, cancel and old ids, full queues, and the integer channel
# in a memfd that another process opens by its descriptor.
use strict;
use warnings;
use Data::ReqRep::Shared;
use Data::ReqRep::Shared::Int;
use File::Temp qw(tempdir);

alarm 10;
my $folder = tempdir(CLEANUP => 1);
my $path = "$folder/loop.shm";
sub readable {
    my ($fd, $seconds) = @_;
    vec(my $in = '', $fd, 1) = 1;
    return 0 < select $in, undef, undef, $seconds;
}

my $srv = Data::ReqRep::Shared->new($path, 64, 16, 256);
die "descriptors before they were made\n" if $srv->fileno != -1 || $srv->reply_fileno != -1;
my $req_fd = $srv->eventfd;
my $rep_fd = $srv->reply_eventfd;
my $REQUESTS = 500;
my $pid = fork // die "fork: $!";
if (!$pid) {
    alarm 10;
    my $cli = Data::ReqRep::Shared::Client->new($path);
    $cli->req_eventfd_set($req_fd);
    $cli->eventfd_set($rep_fd);
    die "inherited descriptors\n" if $cli->req_fileno != $req_fd || $cli->fileno != $rep_fd;
    my ($sent, %flight) = (0);
    while ($sent < $REQUESTS || %flight) {
        while ($sent < $REQUESTS && defined(my $id = $cli->send_notify('r' . ($sent + 1)))) {
            $flight{$id} = ++$sent;
        }
        readable($rep_fd, 5) or die "no reply was signalled\n";
        $cli->eventfd_consume;
        for my $id (keys %flight) {
            my $answer = $cli->get($id);
            next if !defined $answer;
            die "answer: $answer\n" if $answer ne "R$flight{$id}";
            delete $flight{$id};
        }
    }
    exit 0;
}
my $served = 0;
while ($served < $REQUESTS) {
    readable($req_fd, 5) or die "no request was signalled, $served served\n";
    $srv->eventfd_consume;
    while (my ($request, $id) = $srv->recv) {
        $srv->reply($id, uc $request) or die "reply to $request\n";
        $served++;
    }
    $srv->reply_notify;
}
waitpid($pid, 0), $? && die "the client ended with $?\n";

# send alone does not signal, notify does.
my $cli = Data::ReqRep::Shared::Client->new($path);
$cli->req_eventfd_set($req_fd);
$srv->eventfd_consume;
my $id = $cli->send('quiet');
die "send signalled\n" if readable($req_fd, 0.05);
$cli->notify;
die "notify did not signal\n" if !readable($req_fd, 1);
$srv->eventfd_consume;
die "consumed, and still readable\n" if readable($req_fd, 0);

# cancel before the answer: the answer is refused; an old id is not the new one's.
die "pending\n" if $cli->pending != 1;
my ($request, $old) = $srv->recv;
$cli->cancel($id);
die "reply to the cancelled\n" if $srv->reply($old, 'too late');
die "the cancelled has an answer\n" if defined $cli->get($id);
my @ids = map { $cli->send("n$_") } 1 .. 16;
die "an id came twice\n" if grep { $_ == $id } @ids;
die "a 17th slot\n" if defined $cli->send('more') || defined $cli->send_wait('more', 0.1);
die "the old id answered a new request\n" if $srv->reply($old, 'old');
my @pairs = ($srv->recv_multi(10), $srv->drain(5), $srv->drain);
die "all of " . @pairs / 2 . "\n" if @pairs != 32;
while (my ($data, $from) = splice @pairs, 0, 2) {
    $srv->reply($from, "a$data") or die "reply to $data\n";
}
# cancel after the answer does nothing; get takes it.
$cli->cancel($ids[0]);
for my $n (1 .. 16) {
    my $answer = $cli->get($ids[$n - 1]);
    die "answer $n\n" if !defined $answer || $answer ne "an$n";
}
die "an answer came twice\n" if defined $cli->get($ids[0]);
$srv->unlink;

# Integers in a memfd: inherited by one process, opened through /proc by another.
my $int = Data::ReqRep::Shared::Int->new_memfd('counter', 64, 16);
my $memfd = $int->memfd;
my @clients = map {
    my $way = $_;
    my $child = fork // die "fork: $!";
    if (!$child) {
        alarm 10;
        open my $again, '+<', '/proc/' . getppid . "/fd/$memfd" or die "memfd: $!";
        my $fd = $way ? fileno $again : $memfd;
        my $c = Data::ReqRep::Shared::Int::Client->new_from_fd($fd);
        close $again;
        for my $n (9_223_372_036_854_775_806, -9_223_372_036_854_775_807, -1, 0, 1 .. 500) {
            my $got = $c->req($n);
            die "$n and one is $got\n" if $got != $n + 1;
        }
        exit 0;
    }
    $child;
} 0, 1;
my $second = Data::ReqRep::Shared::Int->new_from_fd($memfd);
for my $n (1 .. 2 * 504) {
    my $taker = $n % 2 ? $int : $second;
    my ($number, $from) = $taker->recv_wait(5) or die "no request $n\n";
    $taker->reply($from, $number + 1) or die "no reply to $number\n";
}
waitpid($_, 0), $? && die "a client of the memfd ended with $?\n" for @clients;
print "done\n";
