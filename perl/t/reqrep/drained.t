# A loop that receives until nothing waits ends, however the clients have ended.
use strict;
use warnings;
use Test::More;
use FindBin ();
use lib "$FindBin::Bin/..";
use Processes;
use POSIX ();
use Pipework::ReqRep;

alarm 120;

# Sends three requests and ends as `how` says, in a process of its own unless it is "cancelled" or
# "timed out".
my %ends = (
    left        => sub { },
    exited      => sub { },
    killed      => sub { kill KILL => $$ },
    cancelled   => sub { my ($cli, @ids) = @_; $cli->cancel($_) for @ids },
    'timed out' => sub {
        my ($cli, @ids) = @_;
        $cli->req_wait(1, 0.01) for 1 .. 3;
        $cli->cancel($_) for @ids;
    },
    forgotten => sub { my ($cli, @ids) = @_; $cli->forget($_) for @ids },
);

for my $flavour ('', '::Int') {
    my $class = "Pipework::ReqRep$flavour";
    for my $how (sort keys %ends) {
        my $srv = $flavour ? $class->new(undef, 16, 8) : $class->new(undef, 16, 8, 64);
        my $sends = sub {
            my $cli = "${class}::Client"->new_from_fd($srv->memfd);
            my @ids = map { $cli->send($_) } 1 .. 3;
            $ends{$how}->($cli, @ids);
        };
        if ($how eq 'exited' || $how eq 'killed') {
            my $pid = child { $sends->(); 1 };
            status($pid);
        } else {
            $sends->();
        }
        cmp_ok($srv->size, '<=', 3, "$how: size is at most what was sent $flavour");
        my $size = $srv->size;
        is($srv->is_empty ? 1 : 0, $size ? 0 : 1, "$how: is_empty agrees with size $flavour") if $how ne 'killed';
        my $taken = 0;
        until ($srv->is_empty) {
            my (undef, $id) = $srv->recv_wait(20);
            last unless defined $id;
            $srv->reply($id, 1);
            $taken++;
        }
        # The kernel may report a kill between the two looks. Then the requests are gone, and not received.
        cmp_ok($taken, $how eq 'killed' ? '<=' : '==', $size, "$how: all that size counts can be received $flavour");
        is($srv->size, 0, "$how: nothing is left $flavour");
    }
}
done_testing;
