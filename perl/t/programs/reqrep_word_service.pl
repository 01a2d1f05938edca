# A service that answers words, and clients in other processes that ask it.
use strict;
use warnings;
use Data::ReqRep::Shared;
use File::Temp qw(tempdir);
use Time::HiRes qw(time);

alarm 10;
my $folder = tempdir(CLEANUP => 1);
my $path = "$folder/words.shm";
my $srv = Data::ReqRep::Shared->new($path, 64, 16, 1024);
die "capacity\n" if $srv->capacity != 64;
die "slots\n" if $srv->resp_slots != 16 || $srv->resp_size != 1024;
die "it should be empty\n" if !$srv->is_empty || $srv->size != 0;
die "path: " . $srv->path . "\n" if $srv->path ne $path;
die "something came\n" if my @nothing = $srv->recv;

sub process {
    my ($request) = @_;
    my ($verb, $word) = split / /, $request, 2;
    return scalar reverse $word if $verb eq 'reverse';
    return uc $word if $verb eq 'uc';
    return '' if $verb eq 'empty';
    return 'x' x $word if $verb eq 'times';
    return "bye";
}

my $server = fork;
die "fork: $!" if !defined $server;
if (!$server) {
    alarm 10;
    while (my ($request, $id) = $srv->recv_wait) {
        my $answer = process($request);
        if (!eval { $srv->reply($id, $answer); 1 }) {
            $srv->reply($id, 'error: too long');
        }
        last if $request eq 'stop';
    }
    exit 0;
}

my @clients;
for my $client (1 .. 3) {
    my $pid = fork;
    die "fork: $!" if !defined $pid;
    if (!$pid) {
        alarm 10;
        my $cli = Data::ReqRep::Shared::Client->new($path);
        for my $n (1 .. 300) {
            my $answer = $cli->req("reverse $client-$n");
            die "answer: $answer\n" if $answer ne reverse "$client-$n";
        }
        exit 0;
    }
    push @clients, $pid;
}

my $cli = Data::ReqRep::Shared::Client->new($path);
die "with a deadline\n" if $cli->req_wait('uc hello', 5.0) ne 'HELLO';

# Two in flight, fetched in the other order.
my $id1 = $cli->send('uc first');
my $id2 = $cli->send('uc second');
die "no ids\n" if !defined $id1 || !defined $id2 || $id1 == $id2;
die "second\n" if $cli->get_wait($id2) ne 'SECOND';
die "first\n" if $cli->get_wait($id1, 5) ne 'FIRST';

# Text stays text, bytes stay bytes.
my $text = $cli->req("uc stra\x{df}e \x{263a}");
die "text\n" if $text ne uc "stra\x{df}e \x{263a}";
die "the UTF-8 flag is lost\n" if !utf8::is_utf8($text);
my $bytes = $cli->req("reverse \x00\xff\x80");
die "bytes\n" if $bytes ne "\x80\xff\x00" || utf8::is_utf8($bytes);
my $empty = $cli->req('empty');
die "an empty answer\n" if !defined $empty || $empty ne '';
die "the longest answer\n" if length $cli->req('times 1024') != 1024;
die "an answer too long\n" if $cli->req('times 1025') ne 'error: too long';

for my $pid (@clients) {
    waitpid $pid, 0;
    die "a client ended with $?\n" if $?;
}
die "stop\n" if $cli->req('stop') ne 'bye';
waitpid $server, 0;
die "the server ended with $?\n" if $?;

# No server answers in time: the call ends at its deadline, and a late reply returns false.
my $start = time;
my $late = $cli->req_wait('uc late', 0.3);
my $took = time - $start;
die "an unexpected answer\n" if defined $late;
die "the deadline was $took s\n" if $took < 0.25 || $took > 2;
if (my ($request, $id) = $srv->recv) {
    die "the late request: $request\n" if $request ne 'uc late';
    die "a late answer went out\n" if $srv->reply($id, 'LATE');
}
$start = time;
my @none = $srv->recv_wait(0.2);
die "recv_wait without a request\n" if @none || time - $start < 0.15;
$srv->sync;
$srv->unlink;
die "the file is still there\n" if -e $path;
print "done\n";
