# Payloads arrive as they were sent: flags, bytes, magic, arguments that run code.
use strict;
use warnings;
use Test::More;
use Pipework::ReqRep;

alarm 120;
my $srv = Pipework::ReqRep->new(undef, 64, 32, 4096);
my $cli = Pipework::ReqRep::Client->new_from_fd($srv->memfd);

# There and back.
sub echo {
    my $id = $cli->send($_[0]);
    my ($data, $got) = $srv->recv;
    die 'another id' if $got != $id;
    $srv->reply($got, $data);
    return ($data, $cli->get($id));
}
{
    my $bytes = join '', map { chr } 0 .. 255;
    utf8::upgrade(my $upgraded = "caf\xe9");
    my @wide = ("\x{263a}", "\x{10ffff}", "\xe2\x98\xba");
    for my $text ('', 'abc', "a\0b", $bytes, "caf\xe9", $upgraded, @wide, 42, -1.5) {
        for my $got (echo($text)) {
            is($got, "$text", 'the same string');
            is(!!utf8::is_utf8($got), !!utf8::is_utf8($text), 'with the same flag');
        }
    }
    my ($string) = echo("\x{263a}");
    is(length $string, 1, 'characters, and not bytes');
}
{   # A peer that lies about the flag.
    my $lying = Pipework::ReqRep->new(undef, 8, 4, 64);
    my $other = Pipework::ReqRep::Client->new_from_fd($lying->memfd);
    my $text  = "\xff\xfe broken \xe2\x98";
    {
        require Encode;
        my $wrong = $text;
        Encode::_utf8_on($wrong);
        no warnings;
        $other->send($wrong);
    }
    my ($data) = $lying->recv;
    ok(!utf8::is_utf8($data), 'no flag on bytes that are not valid');
    is($data, $text, 'they arrive as bytes');
}
{   # undef, references, overloaded and tied values
    my @warnings;
    local $SIG{__WARN__} = sub { push @warnings, @_ };
    is((echo(undef))[0], '', 'undef is ""');
    like($warnings[0], qr/uninitialized/, 'with the usual warning');
    my $array = [];
    is((echo($array))[0], "$array", 'a reference is its text');
    { package Over; use overload '""' => sub { $_[0]{n}++; "text$_[0]{n}" }, fallback => 1; }
    my $over = bless {n => 0}, 'Over';
    is((echo($over))[0], 'text1', 'overloading');
    is($over->{n}, 1, 'runs once');
    { package Tied; sub TIESCALAR { bless {n => 0} } sub FETCH { $_[0]{n}++; "tied$_[0]{n}" } }
    tie my $tied, 'Tied';
    is((echo($tied))[0], 'tied1', 'a tied value');
    is(tied($tied)->{n}, 1, 'is fetched once');
    my %hash = (key => 'value');
    is((echo($hash{key}))[0], 'value', 'an element');
    is((echo(substr 'abcdef', 2, 3))[0], 'cde', 'an lvalue');
    'matched' =~ /(match)/;
    is((echo($1))[0], 'match', 'a capture');
    is((echo(v1.2.3))[0], "\1\2\3", 'a v-string');
    is((echo(*STDOUT))[0], '*main::STDOUT', 'a glob');
    my $kept = 'constant';
    echo($kept);
    is($kept, 'constant', 'what is sent stays as it is');
    echo('literal');
    is(scalar @warnings, 1, 'no other warnings') or diag explain \@warnings;
}
{   # Numbers
    my $int = Pipework::ReqRep::Int->new(undef, 8, 4);
    my $one = Pipework::ReqRep::Int::Client->new_from_fd($int->memfd);
    my $through = sub {
        my ($request, $response) = @_;
        my $id  = $one->send($request);
        my ($n) = $int->recv;
        $int->reply($id, $response // $n);
        return $one->get($id);
    };
    is($through->('17'), 17, 'a string');
    is($through->(2.9), 2, 'a fraction is cut off');
    { package Num; use overload '0+' => sub { 23 }, fallback => 1; }
    is($through->(bless {}, 'Num'), 23, 'overloading');
    is($through->(1, 3e9), 3_000_000_000, 'more than 32 bits');
    my @warnings;
    local $SIG{__WARN__} = sub { push @warnings, @_ };
    is($through->('abc'), 0, 'no number is 0');
    like($warnings[0], qr/isn't numeric/, 'with the usual warning');
    is($through->($_), $_, "$_ goes through")
        for qw(9223372036854775807 -9223372036854775808), 9223372036854775807;
    is($through->(-2**63), -9223372036854775808, 'as a fraction of Perl, too');
    my $sent = $one->send(1);
    my (undef, $id) = $int->recv;
    for my $not (~0, 2**63, 1e30, -1e30, 9**9**9, -9**9**9, -sin(9**9**9), '1e30', 'inf',
        '9223372036854775808', '-9223372036854775809')
    {
        ok(!eval { $one->send($not); 1 } && $@ =~ /^request: number out of range at/,
            "$not is no number of 64 bits");
        ok(!eval { $int->reply($id, $not); 1 } && $@ =~ /^response: number out of range at/,
            "and $not no response");
    }
    is($int->reply($id, 5), 1, 'the request is still to be answered');
    is($one->get($sent), 5, 'with a number');
}
{   # Arguments whose code destroys the object, or dies.
    for my $run (
        ['Pipework::ReqRep::Client', sub { $_[1]->send($_[2]) }],
        ['Pipework::ReqRep::Client', sub { $_[1]->req_wait('x', $_[2]) }],
        ['Pipework::ReqRep::Client', sub { $_[1]->req($_[2]) }],
        ['Pipework::ReqRep::Client', sub { $_[1]->get_wait($_[2], 1) }],
        ['Pipework::ReqRep::Client', sub { $_[1]->get($_[2]) }],
        ['Pipework::ReqRep::Client', sub { $_[1]->cancel($_[2]) }],
        ['Pipework::ReqRep::Client', sub { $_[1]->stream($_[2], 1) }],
        ['Pipework::ReqRep::Client', sub { $_[1]->recv_any($_[2]) }],
        ['Pipework::ReqRep::Client', sub { $_[1]->eventfd_set($_[2]) }],
        ['Pipework::ReqRep',         sub { $_[0]->recv_wait($_[2]) }],
        ['Pipework::ReqRep',         sub { $_[0]->reply(1, $_[2]) }],
        ['Pipework::ReqRep',         sub { $_[0]->reply($_[2], 'x') }],
        ['Pipework::ReqRep',         sub { $_[0]->part(1, 'x', $_[2]) }],
        ['Pipework::ReqRep',         sub { $_[0]->fail(1, $_[2]) }],
        ['Pipework::ReqRep',         sub { $_[0]->drain($_[2]) }],
        ['Pipework::ReqRep',         sub { $_[0]->recv_wait_multi($_[2], 1) }],
    ) {
        my ($class, $code) = @$run;
        for my $how (qw(undef DESTROY)) {
            my $server = Pipework::ReqRep->new(undef, 8, 4, 64);
            my $client = Pipework::ReqRep::Client->new_from_fd($server->memfd);
            my $gone = $how eq 'undef'
                ? sub { undef $server; undef $client; '1' }
                : sub { $_->DESTROY for $server, $client; '1' };
            { package Gone; use overload '""' => sub { $_[0]->() }, fallback => 1; }
            my $argument = bless $gone, 'Gone';
            eval { $code->($server, $client, $argument); 1 };
            like($@, qr/^Attempted to use a destroyed $class object/,
                "an argument that destroys its object ($how)");
        }
        my $server = Pipework::ReqRep->new(undef, 8, 4, 64);
        my $client = Pipework::ReqRep::Client->new_from_fd($server->memfd);
        my $dies = bless sub { die "argument\n" }, 'Gone';
        ok(!eval { $code->($server, $client, $dies); 1 } && $@ eq "argument\n",
            'an argument that dies');
        is($server->audit->{free}, 4, 'nothing was done');
    }
}
{   # Time-outs
    my ($server) = Pipework::ReqRep->new(undef, 8, 4, 64);
    my $client = Pipework::ReqRep::Client->new_from_fd($server->memfd);
    for my $seconds (undef, -1, 'inf', 'nan', -9**9**9, 1e30, 2**63) {
        my $id = $client->send('x');
        is(scalar $server->recv_wait($seconds), $id, 'a time that never comes');
        $server->reply($id, 'y');
        is($client->get_wait($id, $seconds), 'y', 'for a client');
    }
    is_deeply([$server->recv_wait($_)], [], "recv_wait($_) tries once") for 0, '0', 1e-12;
}
done_testing;
