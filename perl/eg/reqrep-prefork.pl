#!/usr/bin/env perl
# A server that forks for each request: one that takes long, or kills its process, does not disturb
# the others. Requests are expressions of Perl; responses are their values.
#
#   perl eg/reqrep-prefork.pl EXPRESSION...
use strict;
use warnings;
use Pipework::ReqRep;

my $srv = Pipework::ReqRep->create(slots => 16);
my $cli = Pipework::ReqRep::Client->open(fd => $srv->memfd);

my $server = fork // die "fork: $!\n";
if (!$server) {
    # recv_wait returns nothing once the server is stopped.
    $SIG{TERM} = sub { $srv->stop };
    $SIG{CHLD} = 'IGNORE';
    while (my ($expression, $id) = $srv->recv_wait) {
        my $child = fork;
        if (!defined $child) { $srv->fail($id, "fork: $!"); next }
        next if $child;
        # The request is the child's from here on, and fails with it.
        $srv->adopt($id);
        my $value = eval $expression;
        $@ ? $srv->fail($id, $@) : $srv->reply($id, $value // 'undef');
        exit;
    }
    exit;
}

# All at the same time; each response as it comes.
my %asked = map { $cli->send_wait($_) => $_ } @ARGV;
while (my ($value, $id) = $cli->recv_any(timeout => 60)) {
    chomp(my $why = Pipework::reason() // $!) if !defined $value;
    print "$asked{$id}: ", $value // "failed: $why", "\n";
}
kill TERM => $server;
waitpid $server, 0;
