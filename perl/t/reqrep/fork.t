# Processes: inherited handles, leaving children, and the report of a death.
use strict;
use warnings;
use Test::More;
use FindBin ();
use lib "$FindBin::Bin/..";
use Asleep;
use File::Temp qw(tempdir);
use POSIX ();
use Time::HiRes qw(time sleep);
use Pipework::ReqRep;

alarm 120;
my $folder = tempdir(CLEANUP => 1);
my $number = 0;

sub ends {
    my $path = "$folder/rr" . $number++;
    my $srv  = Pipework::ReqRep->new($path, 16, 8, 64);
    return ($srv, Pipework::ReqRep::Client->new($path), $path);
}

# Runs code in a child, which destroys its objects and exits with 0 if the code returned true.
sub child(&) {
    my ($code) = @_;
    defined(my $pid = fork) or die "fork: $!";
    return $pid if $pid;
    my $ok = eval { $code->() };
    warn $@ if $@;
    exit($ok ? 0 : 1);
}

sub ended { my ($pid, $name) = @_; waitpid $pid, 0; is($?, 0, $name) }

{   # Many clients and many servers, each in a process.
    my ($srv, $cli, $path) = ends();
    my @servers = map {
        child {
            while (my ($req, $id) = $srv->recv_wait(20)) {
                $srv->reply($id, $req eq 'stop' ? 'stopping' : "$$:$req");
                return 1 if $req eq 'stop';
            }
        }
    } 1 .. 3;
    my @clients = map {
        child {
            my $mine = Pipework::ReqRep::Client->new($path);
            for my $i (1 .. 200) {
                my $text = join '-', $$, $i;
                return 0 if $mine->req($text) !~ /:$text\z/;
            }
            return $cli->req('inherited') =~ /:inherited\z/;
        }
    } 1 .. 3;
    ended($_, 'a client has its own responses') for @clients;
    $cli->req('stop') for @servers;
    ended($_, 'a server') for @servers;
    is($srv->audit->{free}, 8, 'nothing is left in use');
}
{   # A server that forks for each request.
    my ($srv, $cli) = ends();
    my $id = $cli->send('work');
    my ($req, $got) = $srv->recv;
    my $pid = child { $srv->reply($got, "done by $$") };
    is($cli->get_wait($id, 20), "done by $pid", 'a child answers what its parent took');
    ended($pid, 'its reply returns true');
    is($srv->reply($got, 'mine'), '', 'the parent may not answer any more');
    ok($!{ESTALE}, '$! is ESTALE');
    my @ids = map { $cli->send("r$_") } 1 .. 5;
    my @children;
    while (my ($req, $got) = $srv->recv) {
        push @children, child { $srv->is_wanted($got) && $srv->reply($got, uc $req) };
    }
    is_deeply([map { $cli->get_wait($_, 20) } @ids], [map { "R$_" } 1 .. 5], 'five at a time');
    ended($_, 'a child') for @children;

    $id = $cli->send('not yours');
    $got = $srv->recv;
    ended(child { 1 }, 'a child that does nothing');
    is($srv->is_wanted($got), 1, 'its exit takes nothing away');
    is($srv->reply($got, 'mine'), 1, 'the parent answers');
    is($cli->get($id), 'mine', 'as ever');

    $id  = $cli->send('adopted');
    $got = $srv->recv;
    my $later = child { $srv->adopt($got) && sleep(0.3) && $srv->reply($got, 'late') };
    is($cli->get_wait($id, 20), 'late', 'adopt');
    ended($later, 'it answers later');
}
{   # Ids of a parent's calls are the parent's.
    my ($srv, $cli) = ends();
    my $id = $cli->send('mine');
    $srv->reply(scalar $srv->recv, 'response');
    ended(child {
        my $none = !defined $cli->get($id) && $!{ESTALE};
        $cli->cancel($id);
        $none && $cli->pending == 0;
    }, 'a child gets none of them');
    is($cli->pending, 1, 'and ends none of them');
    is($cli->get($id), 'response', 'the parent gets it');
}
{   # Send and exit.
    my ($srv, $cli, $path) = ends();
    ended(child { Pipework::ReqRep::Client->new($path)->send('sent and gone') }, 'a client');
    is((($srv->recv)[0]), 'sent and gone', 'what was sent is carried out when its client has gone');
    { Pipework::ReqRep::Client->new($path)->send('went out of scope') }
    my ($req, $id) = $srv->recv;
    is($req, 'went out of scope', 'so it is after DESTROY');
    is($srv->is_wanted($id), 1, 'it is to be carried out');
    is($srv->reply($id, 'nobody'), '', 'its reply returns false');
    my $other = Pipework::ReqRep::Client->new($path);
    $other->send('twice') for 1 .. 2;
    ended(child { undef $other; 1 }, 'a child lets go of a client of its parent');
    is($srv->size, 2, 'whose requests stay');
    is($other->pending, 2, 'with their client');
    is($srv->audit->{free}, 8 - 2 - 1, 'and nothing else is in use');
}
{   # kill -9 of a server in the middle of a request.
    my ($srv, $cli, $path) = ends();
    pipe my $in, my $out;
    for my $call (qw(req req_wait get_wait)) {
        my $pid = child {
            $srv->recv_wait(20);
            syswrite $out, 'x';
            sleep 30;
        };
        my $killer = child {
            sysread $in, my $x, 1;
            until_asleep;
            kill 9, $pid;
            syswrite $out, pack 'd', time;
        };
        my @with = $call eq 'get_wait' ? ($cli->send('x'), 20) : $call eq 'req' ? 'x' : ('x', 20);
        my $response = $cli->$call(@with);
        my ($errno, $known) = ($! + 0, time);
        waitpid $pid, 0;
        is($response, undef, "$call: undef when its server was killed");
        is($errno, POSIX::ECONNRESET(), '$! is ECONNRESET');
        is(Pipework::error() + 0, 7, 'the kind of the failure');
        my $op = $call eq 'get_wait' ? 'recv' : 'call';
        is(Pipework::error(), "reqrep $op: the peer has died", 'and its text');
        sysread $in, my $when, 8;
        my $late = $known - unpack 'd', $when;
        cmp_ok($late, '<', 15, "in time ($late s)");
        ended($killer, 'the killer');
        is($cli->pending, 0, 'nothing stays behind');
    }
    cmp_ok($cli->stats->{dead_members}, '>=', 3, 'the dead are counted');
}
{   # Slots of dead clients come back, also to calls that do not wait.
    my ($srv, $cli, $path) = ends();
    my $pid = child {
        my $mine = Pipework::ReqRep::Client->new($path);
        $mine->send('x') for 1 .. 8;
        kill 9, $$;
    };
    waitpid $pid, 0;
    ok($cli->send('mine'), 'send has a slot when the holders of all of them have died');
    is((($srv->recv_wait(5))[0]), 'mine', 'what a dead client has sent is not delivered');
    is($cli->stats->{recoveries}, 8, 'recoveries');
}
{   # Redeliveries.
    my ($srv, undef, $path) = ends();
    my $cli = Pipework::ReqRep::Client->open(path => $path, redeliveries => 1);
    my $pid = child { $srv->recv_wait(20); kill 9, $$ };
    my $id  = $cli->send('twice');
    waitpid $pid, 0;
    is($srv->recover, 1, 'recover: one has died');
    my ($req, $got) = $srv->recv_wait(5);
    is($req, 'twice', 'another server gets it');
    is($got, $id, 'with the same id');
    is($srv->redeliveries($got), 1, 'redeliveries of the server');
    $srv->reply($got, 'done');
    is($cli->get($id), 'done', 'the response');
    is($srv->redeliveries($got), undef, 'redeliveries of what was answered');
}
{   # _exit and exec leave nothing in use.
    my ($srv, $cli, $path) = ends();
    for my $end (sub { POSIX::_exit(0) }, sub { exec 'true' }, sub { kill 9, $$ }) {
        my $pid = child {
            my $mine = Pipework::ReqRep::Client->new($path);
            $mine->send('x');
            $srv->recv;
            $mine->send('y');
            $end->();
        };
        waitpid $pid, 0;
        ok($cli->recover <= 2, 'recovered');
        is($cli->audit->{free} + $cli->audit->{waiting}, 8, 'nothing is held');
        $srv->clear;
    }
    $cli->send('z');
    is_deeply([map { "$_->{role} $_->{pid} $_->{alive}" } $cli->members],
        ["server $$ 1", "client $$ 1"], 'members');
    my ($first) = $cli->members;
    is($first->{number}, 1, 'their numbers');
    cmp_ok(abs($first->{since} - time), '<', 50, 'and since when');
}
{   # A program that closes all descriptors, as daemons do.
    my ($srv, $cli, $path) = ends();
    my $id = $cli->send('before');
    ended(child {
        $cli->stats;
        POSIX::close($_) for 3 .. 200;
        open my $strangers, '<', '/dev/null' or return;
        my $none = eval { $srv->audit; 1 };
        return if $none || $@ !~ /: a descriptor of the segment was closed: .*Bad file descriptor/;
        # Nothing of the stranger's is touched, and another segment works.
        undef $srv;
        undef $cli;
        my $again = Pipework::ReqRep->new($path, 1, 1, 1);
        my ($req, $got) = $again->recv or return;
        my $is_well = $again->reply($got, 'after') && -c $strangers;
        # Perl would warn of the handles whose descriptors it has closed.
        POSIX::_exit($is_well ? 0 : 1);
    }, 'a daemon opens it again');
    is($cli->get_wait($id, 20), 'after', 'and serves');
}
done_testing;
