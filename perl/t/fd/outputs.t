# Where results are put: variables that refuse them leave no descriptor open, and tied arrays are
# arrays.
use strict;
use warnings;
use File::Temp qw(tempdir);
use Socket;
use Test::More;
use Pipework::FD;

alarm 120;
my $folder = tempdir(CLEANUP => 1);

package Refusing {
    sub TIESCALAR { bless [$_[1]], $_[0] }
    sub FETCH     { $_[0][0] }
    sub STORE     { die "refused\n" }

    sub TIEARRAY  { bless [], $_[0] }
    sub FETCHSIZE { scalar @{$_[0]} }
    sub PUSH      { die "refused\n" }
}

package Elements {
    sub TIEARRAY  { my ($class, @values) = @_; bless [@values], $class }
    sub FETCH     { $_[0][$_[1]] }
    sub FETCHSIZE { scalar @{$_[0]} }
}

sub descriptors { opendir my $all, '/proc/self/fd' or die $!; return scalar(() = readdir $all) }

sub listener {
    my ($connections) = @_;
    my $name = pack_sockaddr_un("$folder/socket");
    unlink "$folder/socket";
    socket my $listener, AF_UNIX, SOCK_STREAM, 0 or die $!;
    bind $listener, $name or die $!;
    listen $listener, 5 or die $!;
    my @clients = map { socket my $client, AF_UNIX, SOCK_STREAM, 0; $client } 1 .. $connections;
    connect $_, $name or die $! for @clients;
    return ($listener, @clients);
}

my ($listener, @clients) = listener(5);
my %makes = (
    socket     => sub { Pipework::FD::socket($_[0], AF_UNIX, SOCK_STREAM, 0) },
    socketpair => sub { Pipework::FD::socketpair($_[0], $_[0], AF_UNIX, SOCK_STREAM, 0) },
    pipe       => sub { Pipework::FD::pipe($_[0], $_[0]) },
    sysopen    => sub { Pipework::FD::sysopen($_[0], '/dev/null', 0) },
    accept     => sub { Pipework::FD::accept($_[0], fileno $listener) },
);
for my $name (sort keys %makes) {
    my $before = descriptors();
    tie my $tied, 'Refusing';
    ok(!eval { $makes{$name}->($tied); 1 }, "$name: a variable that refuses it");
    is($@, "refused\n", 'as it says');
    'x' =~ /(x)/ or die;
    ok(!eval { $makes{$name}->($1); 1 }, "$name: one that is read only by magic");
    like($@, qr/^Modification of a read-only value/, 'as Perl says');
    ok(!eval { $makes{$name}->(*STDOUT); 1 }, "$name: a glob");
    is(descriptors(), $before, 'nothing is open');
}
{
    my $before = descriptors();
    tie my $template, 'Refusing', "$folder/XXXXXX";
    ok(!eval { Pipework::FD::mkstemp($template); 1 }, 'mkstemp');
    is(descriptors(), $before, 'nothing is open');
    tie my @refusing, 'Refusing';
    ok(!eval { Pipework::FD::accept_multiple(@refusing, my @peers, fileno $listener); 1 },
        'an array that refuses it');
    is(descriptors(), $before, 'nothing is open');
}
{
    socketpair my $one, my $other, AF_UNIX, SOCK_DGRAM, 0;
    tie my @datagrams, 'Elements', ['one'], 'two', ['three', undef];
    is(Pipework::FD::send_many(fileno $one, \@datagrams), 3, 'datagrams in a tied array');
    is_deeply([map { sysread $other, my $bytes, 99; $bytes } 1 .. 3], [qw(one two three)],
        'arrive');
}
done_testing;
