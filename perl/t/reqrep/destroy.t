# Destruction: by hand, in any order, half-built, in a child, at the end of the program.
use strict;
use warnings;
use Test::More;
use File::Temp qw(tempdir);
use Pipework::ReqRep;

alarm 120;
my $folder = tempdir(CLEANUP => 1);

# Without the one by which a process that has waited for a second listens for deaths: that one stays.
sub descriptors {
    return scalar grep { (readlink($_) // '') ne 'anon_inode:inotify' } glob '/proc/self/fd/*';
}

sub attached { scalar(() = $_[0]->members) }

my %make = (
    'Pipework::ReqRep'              => sub { Pipework::ReqRep->new(undef, 8, 4, 64) },
    'Pipework::ReqRep::Int'         => sub { Pipework::ReqRep::Int->new(undef, 8, 4) },
    'Pipework::ReqRep::Client'      => sub {
        Pipework::ReqRep::Client->new_from_fd(Pipework::ReqRep->new(undef, 8, 4, 64)->memfd);
    },
    'Pipework::ReqRep::Int::Client' => sub {
        Pipework::ReqRep::Int::Client->new_from_fd(Pipework::ReqRep::Int->new(undef, 8, 4)->memfd);
    },
);
for my $class (sort keys %make) {
    my $object = $make{$class}->();
    is_deeply([$object->DESTROY], [], "$class: DESTROY by hand");
    $object->DESTROY;
    no strict 'refs';
    for my $method (sort grep { defined &{"${class}::$_"} } keys %{"${class}::"}) {
        next if $method =~ /^(?:new\w*|create|open\w*|DESTROY|VERSION|unlink|BEGIN|_handle)$/;
        # With as many arguments as it takes.
        for my $count (reverse 0 .. 3) {
            last if !eval { $object->$method((1) x $count); 1 } && $@ !~ /^Usage|unknown argument/;
        }
        like($@, qr/^Attempted to use a destroyed $class object/, "$class: $method says so");
    }
    my $again = bless [], $class;
    is_deeply([$again->DESTROY], [], "$class: a foreign object is ignored");
    no warnings 'uninitialized';
    ok(!eval { $class->new(undef, 1); 1 }, "$class: half-built objects");
}
{   # `local` of a name makes a scalar that is no object.
    our $name;
    no strict 'refs';
    my $srv = $make{'Pipework::ReqRep'}->();
    local *name = my $cli = Pipework::ReqRep::Client->new_from_fd($srv->memfd);
    $cli->send(1);
    { local $name; ok(!eval { (\$name)->pending; 1 }, 'local makes no object') }
    is(attached($srv), 1, 'and its end destroys none');
    is($cli->pending, 1, 'which goes on');
}
{   # What DESTROY keeps.
    my $object = $make{'Pipework::ReqRep::Client'}->();
    $object->send(1);
    local ($@, $!, $?) = ('kept', 5, 7);
    undef $object;
    is("$@ " . ($! + 0) . " $?", 'kept 5 7', '$@, $! and $?');
}
{   # Members leave, in any order.
    my $path = "$folder/rr";
    my $spy  = Pipework::ReqRep->new($path, 8, 4, 64);
    for my $order ([0, 1, 2], [2, 1, 0], [1, 0, 2]) {
        my @ends = Pipework::ReqRep->new($path, 8, 4, 64);
        push @ends, Pipework::ReqRep::Client->new($path) for 1, 2;
        my $stream = $ends[1]->stream('x');
        $ends[2]->send('y');
        my $id = $ends[0]->recv;
        is(attached($spy), 3, 'three are attached');
        undef $ends[1] if $order->[0] == 1;
        $ends[1]->send('z') if $ends[1];
        $ends[0]->part($id, 'part');
        is($stream->next, 'part', 'a stream outlives its client');
        undef $ends[$_] for @$order;
        undef $stream;
        is(attached($spy), 0, 'none is left');
        my $audit = $spy->audit;
        is($audit->{free} + $audit->{waiting}, 4, 'nothing is held, but what was sent');
        $spy->drain;
        undef $spy;
        $spy = Pipework::ReqRep->new($path, 8, 4, 64);
    }
}
{   # A request sent before a stream outlives both.
    my $srv    = Pipework::ReqRep->new(undef, 8, 4, 64);
    my $cli    = Pipework::ReqRep::Client->new_from_fd($srv->memfd);
    my $stream = $cli->stream('x');
    $cli->send('y');
    undef $cli;
    my ($x, $id) = $srv->recv;
    $srv->part($id, 'part');
    is($stream->next, 'part', 'a stream goes on when its client goes out of scope');
    undef $stream;
    is($srv->reply($id, ''), '', 'it is cancelled with its object');
    is((($srv->recv)[0]), 'y', 'and what was sent stays');
    is(attached($srv), 1, 'the client has left');
}
{   # A server that is destroyed fails its requests.
    my $srv = Pipework::ReqRep->new(undef, 8, 4, 64);
    my $cli = Pipework::ReqRep::Client->new_from_fd($srv->memfd);
    my $id  = $cli->send('x');
    $srv->recv;
    undef $srv;
    is($cli->get_wait($id, 10), undef, 'get_wait of its call returns undef');
    ok($!{ECANCELED}, 'with ECANCELED');
}
{   # Descriptors and memory stay as they were.
    my $once = sub {
        for my $class (values %make) {
            my $object = $class->();
            $object->eventfd;
            my @bells = $object->doorbell;
            eval { $object->send(1) };
            eval { $object->recv };
        }
        my $srv    = Pipework::ReqRep->new(undef, 8, 4, 64);
        my $cli    = Pipework::ReqRep::Client->new_from_fd($srv->memfd);
        my $stream = $cli->stream('x');
        $srv->part(scalar $srv->recv, 'part');
        $stream->next;
        eval { Pipework::ReqRep::Client->new("$folder/none") };
        eval { Pipework::ReqRep::Client->new_from_fd(0) };
        eval { Pipework::ReqRep::Int::Client->new_from_fd($srv->memfd) };
    };
    $once->() for 1 .. 5;
    my $before = descriptors();
    $once->() for 1 .. 50;
    is(descriptors(), $before, 'no descriptor is left behind');
}

# Programs that end with objects in use, in every way.
my $setup = <<'PERL';
use strict; use warnings; use Pipework::ReqRep;
our $srv = Pipework::ReqRep->new(undef, 8, 4, 64);
our $cli = Pipework::ReqRep::Client->new_from_fd($srv->memfd);
our $id  = $cli->send('x'); $srv->recv; $cli->send('y');
our $bell = $cli->doorbell; our $fd = $srv->eventfd;
our $stream = $cli->stream('z');
PERL
my %programs = (
    'globals'           => '',
    'exit'              => 'exit 0;',
    'a circle'          => 'my $a = [$srv, $cli, $stream]; push @$a, $a;',
    'an END block'      => 'END { $cli->send("late"); $srv->recv }',
    'a global in DESTROY' => 'package D; sub DESTROY { eval { $main::cli->send("late") } } '
        . 'our $d = bless [];',
    'a fork'            => 'my $pid = fork; waitpid $pid, 0 if $pid; exit($? >> 8);',
    'a fork that dies'  => 'my $pid = fork; if (!$pid) { close STDERR; die } waitpid $pid, 0; '
        . '$? = 0;',
    'POSIX::_exit'      => 'require POSIX; POSIX::_exit(0);',
    'exec'              => 'exec "true";',
    'die in an eval'    => 'require Time::HiRes; local $SIG{ALRM} = sub { die }; '
        . 'eval { Time::HiRes::ualarm(9999); $cli->req("w") };',
    'exit in a handler' => '$SIG{ALRM} = sub { exit 0 }; require Time::HiRes; '
        . 'Time::HiRes::ualarm(9999); $cli->req("w");',
);
for my $name (sort keys %programs) {
    open my $file, '>', "$folder/program.pl" or die $!;
    print $file $setup, $programs{$name};
    close $file;
    my $with = join ' ', map { "-I$_" } grep { /blib/ } @INC;
    my $out  = `$^X -w $with $folder/program.pl 2>&1`;
    is("$? $out", '0 ', "a program that ends with objects in use: $name");
}
done_testing;
