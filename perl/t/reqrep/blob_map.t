# The scalar that `map` of a blob returns: it is the blob's memory, no operation changes it, and it
# outlives everything else.
use strict;
use warnings;
use B ();
use FindBin ();
use lib "$FindBin::Bin/..";
use File::Temp qw(tempdir);
use Processes;
use Test::More;
use Pipework::ReqRep;

alarm 120;
my $folder = tempdir(CLEANUP => 1);
my $path   = "$folder/rr";
my $srv    = Pipework::ReqRep->create(path => $path, slots => 4, blob_pool => 0);

sub files { my @files = glob "$path.*.blobs/*"; return @files }

# Where the bytes of a scalar lie.
sub address { return unpack 'J', pack 'p', $_[0] }

my $text = join ' ', 1 .. 2000;
my $blob = $srv->blob_from($text);
my $map  = $blob->map;

{   # It is the memory.
    is(ref $map, 'SCALAR', 'map returns a reference to a scalar');
    is(address($$map), address(${$blob->map}), 'two maps are the same bytes');
    isnt(address($$map), address(my $copy = $$map), 'an assignment copies them');
    is(B::svref_2object($map)->LEN, 0, 'Perl does not own the memory');
    is(B::svref_2object(\$copy)->LEN > length $text, 1, 'but that of a copy');
}
{   # Everything that reads gives what it gives for a copy.
    my %reads = (
        length => sub { length $_[0] }, substr => sub { substr $_[0], 100, 10 },
        index => sub { index $_[0], '1999' }, rindex => sub { rindex $_[0], ' 2' },
        unpack => sub { join ',', unpack 'A3 x2 N/A*', $_[0] }, checksum => sub { unpack '%32C*', $_[0] },
        match => sub { $_[0] =~ /(\d+) (1000) (\d+)/ ? "$1$2$3$`$'" : '' },
        global => sub { my $count = 0; $count++ while $_[0] =~ /\d+/g; $count },
        list => sub { scalar(() = $_[0] =~ /\d+/g) }, split => sub { join '-', split / /, $_[0] },
        reverse => sub { scalar reverse $_[0] }, complement => sub { ~$_[0] }, xor => sub { $_[0] ^ 'mask' x 2500 },
        join => sub { join $_[0], 1, 2, 3 }, concatenate => sub { "<$_[0]>" . "\x{263a}$_[0]" },
        key => sub { my %h = ($_[0] => 1); (keys %h)[0] }, sort => sub { join '', sort $_[0], 'a', '0' },
        compare => sub { ($_[0] eq $text) . ($_[0] lt 'a') . ($_[0] cmp "\x{263a}") }, truth => sub { !!$_[0] },
        tr => sub { $_[0] =~ tr/0// }, replaced => sub { $_[0] =~ s/ /,/gr }, uc => sub { uc $_[0] },
        sprintf => sub { sprintf '%s|%.5s|%-5s', @_, @_, @_ }, ord => sub { ord $_[0] }, vec => sub { vec $_[0], 3, 8 },
        number => sub { no warnings; 0 + $_[0] }, integer => sub { no warnings; int $_[0] },
        handle => sub { open my $in, '<', \$_[0] or die $!; local $/ = ' '; join '|', <$in> },
        eval => sub { eval "q($_[0])" }, push => sub { my @all = ($_[0]) x 2; "@all" },
        returned => sub { my $get = sub { $_[0] }; $get->($_[0]) . 'x' }, local => sub { local $_ = $_[0]; s/1//; $_ },
        assigned => sub { my $own = $_[0]; $own .= 'more'; substr($own, 0, 1) = ''; $own },
    );
    for my $name (sort keys %reads) {
        is($reads{$name}->(${$blob->map}), $reads{$name}->(my $copy = $text), $name);
    }
    open my $out, '>', "$folder/out" or die $!;
    print {$out} $$map;
    syswrite $out, $$map, 5, 10 if close($out) && open $out, '>>', "$folder/out";
    close $out;
    is(-s "$folder/out", length($text) + 5, 'print and syswrite');
}
{   # Everything that would write dies, and changes nothing.
    my %writes = (
        assign => sub { ${$_[0]} = 1 }, append => sub { ${$_[0]} .= 1 }, increment => sub { ${$_[0]}++ },
        substitute => sub { ${$_[0]} =~ s/1/2/ }, transliterate => sub { ${$_[0]} =~ tr/1/2/ },
        'left substr' => sub { substr(${$_[0]}, 0, 1) = 'x' }, 'substr of four' => sub { substr ${$_[0]}, 0, 1, 'x' },
        'reference to substr' => sub { my $part = \substr ${$_[0]}, 0, 1; $$part = 'x' },
        vec => sub { vec(${$_[0]}, 0, 8) = 65 }, chop => sub { chop ${$_[0]} }, undef => sub { undef ${$_[0]} },
        read => sub { open my $in, '<', $0; read $in, ${$_[0]}, 10 },
        sysread => sub { open my $in, '<', $0; sysread $in, ${$_[0]}, 10, 5 },
        readline => sub { open my $in, '<', $0; ${$_[0]} = readline $in }, handle => sub { no warnings 'layer'; open my $out, '>', $_[0] or die "read-only $!" },
        foreach => sub { $_ = 1 for ${$_[0]} }, alias => sub { sub { $_[0] = 1 }->(${$_[0]}) },
        decode => sub { utf8::decode(${$_[0]}) || die 'read-only' },
        'SvREADONLY off' => sub { Internals::SvREADONLY(${$_[0]}, 0); substr(${$_[0]}, 0, 1) = 'x' },
        bless => sub { bless $_[0] }, 'Pipework::FD' => sub { require Pipework::FD; open my $in, '<', $0; Pipework::FD::sysread(fileno $in, ${$_[0]}, 10) // die 'read-only' },
    );
    for my $name (sort keys %writes) {
        my $lived = eval { $writes{$name}->($map); 1 };
        like($lived ? 'it lived' : "$@", qr/read-only|Permission denied/i, "$name dies");
        ok($$map eq $text && $blob->bytes eq $text, "$name: the bytes are as before");
    }
    my $other = $srv->blob_from("caf\xe9 " x 1000);
    my $wide  = $other->map;
    eval { utf8::upgrade($$wide) };
    is($$wide, $other->bytes, 'utf8::upgrade changes no character');
    is($other->bytes, "caf\xe9 " x 1000, 'and no byte of the blob');
}
{   # Numbers: Perl reads a text up to a NUL, which may be behind the end of the memory.
    no warnings 'numeric';
    my $pool = Pipework::ReqRep->create;
    $pool->blob_from('9' x 4000);
    for my $number ('1.5', '', '0', '0x', '12', '1' x 4096, '1.' . '5' x 4094, "3.25\0" . '7' x 4091, '8' x 8192) {
        my $of = $pool->blob_from($number)->map;
        is(0 + $$of, 0 + $number, length($number) . ' bytes as a number');
        is($$of, $number, 'and as a text');
        ok(!eval { $$of = 1; 1 }, 'which is read-only');
    }
    my ($one, $two) = map { $pool->blob_from($_)->map } "\0" . 'x' x 4095, 'x' x 4096;
    is(B::svref_2object($one)->LEN, 0, 'a whole page with a NUL is not copied');
    isnt(B::svref_2object($two)->LEN, 0, 'and one without is');
}
{   # `local` makes another scalar, which owns nothing.
    our $name;
    no strict 'refs';
    {
        local *name = $map;
        is($name, $text, 'a name for it');
        { local $name; is($name, undef, 'local') }
        ok(!eval { local $name = 'other'; 1 }, 'local with a value: it stays read-only');
        is($name, $text, 'afterwards');
    }
    local *name = $srv;
    { local $name }
    is($srv->resp_slots, 4, 'local of an object');
}
{   # Destruction in any order.
    is(files(), 1, 'one file');
    for my $order ([0, 1, 2], [1, 0, 2], [2, 1, 0], [1, 2, 0]) {
        my @all = $srv->blob_from('x' x 5000);
        push @all, map { $all[0]->map } 1, 2;
        for my $gone (@$order) {
            is(files(), 2, 'its file');
            is(length ${$all[$_]}, 5000, 'is readable') for grep { $all[$_] } 1, 2;
            $all[0]->DESTROY if !$gone;
            undef $all[$gone];
        }
        is(files(), 1, 'which is freed with the last of them');
    }
    open my $in, '<', $srv->blob_from("a\nb\n")->map or die $!;
    is(join('', <$in>), "a\nb\n", 'a handle of a map holds it');
    is(files(), 2, 'as long as it is open');
    close $in;
    undef $in;
    is(files(), 1, 'and no longer');
    my $error = do { $! = 5; undef $map; $! + 0 };
    is($error, 5, '$! stays');
    undef $blob;
    is(files(), 0, 'nothing is left');
    my $circle = {};
    @$circle{qw(map self)} = ($srv->blob_from('x')->map, $circle);
    is(files(), 1, 'a map in a circle is held');
    delete $circle->{self};
}

# Programs that end with maps in use leave no file, in any order of destruction.
my %programs = (
    'a lexical'  => 'my $map = $blob->map;',
    'a global'   => 'our $map = $blob->map; our $same = $map;',
    'a circle'   => 'my $all = {map => $blob->map, blob => $blob}; $all->{self} = $all;',
    'DESTROY'    => 'package D; sub DESTROY { my $text = ${$_[0]{map}}; $text eq "" || $text eq "x" x 5000 or print "wrong" } '
        . 'our @d = map { bless {map => $blob->map} } 1 .. 3;',
    'END'        => 'my $map = $blob->map; END { print "wrong" if $$map ne "x" x 5000 }',
    'a name'     => 'our $name; *name = $blob->map; undef $blob; local $name;',
    'die'        => 'my $map = $blob->map; $SIG{__DIE__} = sub { exit 0 }; die',
    'a draft'    => 'our $draft = $srv->blob(5000);',
    'a fork'     => 'my $map = $blob->map; waitpid((fork || exit 0), 0); print "wrong" if $$map ne "x" x 5000;',
    'threads'    => 'use Config; my $map = $blob->map; if ($Config{useithreads}) { require threads; '
        . 'threads->create(sub { print "wrong" if $$map ne "x" x 5000; $blob->length })->join; '
        . 'threads->create(sub { undef $map; undef $blob; 1 })->join; } print "wrong" if $$map ne "x" x 5000;',
);
for my $name (sort keys %programs) {
    my $left = "$folder/left";
    open my $file, '>', "$folder/program.pl" or die $!;
    print $file <<"PERL", $programs{$name};
use strict; use warnings; use Pipework::ReqRep;
our \$srv = Pipework::ReqRep->open_or_create(path => '$left', slots => 2);
our \$blob = \$srv->blob_from('x' x 5000);
PERL
    close $file;
    my $out = output_of($folder, '-w', 'program.pl');
    is("$? $out", '0 ', "a program that ends with a map in use: $name");
    my @files = glob "$left.*.blobs/*";
    is(@files, 0, "$name leaves no file");
    unlink $left, @files;
}
done_testing;
