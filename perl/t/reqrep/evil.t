# A segment whose bytes another process changes: exceptions, undef or wrong answers, but no crash, no
# endless wait, and no invalid string with the UTF-8 flag.
use strict;
use warnings;
use File::Temp qw(tempdir);
use POSIX ();
use Test::More;
use Pipework::ReqRep;

alarm 120;
my $folder = tempdir(CLEANUP => 1);

# Everything that there is to call. Nothing waits long.
sub use_all {
    my ($srv, $cli, $kind) = @_;
    for my $round (1 .. 2) {
        for my $run (
            sub { $cli->send(7); my @got = $srv->recv; $srv->reply($got[1], 8) },
            sub { my $id = $cli->send(7); $srv->reply($id, 8); $cli->get($id) },
            sub { $cli->send(7); my @got = $srv->recv_wait(0.001); $srv->fail($got[1]) },
            sub { $cli->req_wait(7, 0.001) },
            sub { $cli->call(7, 0.001) },
            sub { my %all = reverse $srv->drain; $srv->reply($_, 1) for keys %all },
            sub { $cli->recv_any(0.001) },
            sub { $srv->part(scalar $srv->recv, 'part', 0.001) if !$kind },
            sub { $srv->flush(scalar $srv->recv, 0.001) if !$kind },
            sub { my $stream = $cli->stream(7, 0.001); $stream->next(0.001) },
            sub { $cli->send(7, blobs => [$cli->blob_from('x')]); map { $_->bytes, ${$_->map} } $srv->blobs(scalar $srv->recv) },
            sub { my $id = $cli->send(7); $srv->reply($srv->recv, 8, blobs => [$srv->blob_from('y')]); map { $_->bytes } $cli->get_message($id, 0.001)->blobs },
            sub { $srv->stats; $srv->audit; $srv->geometry; $cli->members; $cli->pending },
            sub { $srv->recover; $srv->clear },
        ) {
            # Every result must be a valid string.
            my @got = eval { $run->() };
            for my $value (grep { defined && !ref } @got) {
                utf8::is_utf8($value) && !utf8::valid($value) and die "an invalid string";
            }
        }
    }
    return;
}

# Runs it in a child, so that a crash is seen.
sub survives {
    my ($code, $name) = @_;
    defined(my $pid = fork) or die "fork: $!";
    if (!$pid) {
        open STDERR, '>', "$folder/stderr";
        alarm 120;
        eval { $code->(); 1 } or do { print STDERR $@; POSIX::_exit(9) };
        POSIX::_exit(0);
    }
    waitpid $pid, 0;
    my $failed = $? != 0;
    is($?, 0, $name) or diag(do { open my $in, '<', "$folder/stderr"; local $/; readline $in });
    return !$failed;
}

my $seed = $ENV{SEED} // 20260101;
srand $seed;
for my $kind ('', '::Int') {
    # Each place of the header and of the first slots, and random places, with values that hurt.
    my @values = (0, 1, 255, 0x7fffffff, 0xffffffff, 2**63, ~0);
    my $broken = survives(sub {
        for my $nth (1 .. 150) {
            my $path = "$folder/broken$kind";
            my $srv  = "Pipework::ReqRep$kind"->new($path, 8, 4, $kind ? () : 64);
            my $cli  = "Pipework::ReqRep${kind}::Client"->new($path);
            $cli->send(5) for 1 .. 3;
            $srv->recv;
            open my $file, '+<:raw', $path or die $!;
            my $len = -s $file;
            for (1 .. 1 + rand 20) {
                my $at = 8 * int rand($len / 8);
                $at = 8 * int rand 700 if rand() < 0.7;
                seek $file, $at, 0;
                my $value = rand() < 0.5 ? $values[rand @values] : rand(2**32) << 32 | rand 2**32;
                print $file pack 'Q', $value;
            }
            close $file;
            use_all($srv, $cli, $kind);
            if (my $late = eval { $cli->new($path) }) { use_all($srv, $late, $kind) }
            undef $srv;
            undef $cli;
            unlink $path;
        }
    }, "random bytes in a segment$kind (SEED=$seed)");

    survives(sub {
        my $path = "$folder/while$kind";
        my $srv  = "Pipework::ReqRep$kind"->new($path, 8, 4, $kind ? () : 64);
        my $cli  = "Pipework::ReqRep${kind}::Client"->new($path);
        my $end  = time + 1;
        my $pid  = fork // die;
        if (!$pid) {
            open my $file, '+<:raw', $path or die $!;
            $file->autoflush(1);
            my $len = -s $file;
            while (time < $end) {
                seek $file, 64 + int rand($len - 64), 0;
                print $file pack 'L', rand 2**32;
            }
            POSIX::_exit(0);
        }
        use_all($srv, $cli, $kind) while time < $end;
        kill 9, $pid;
        waitpid $pid, 0;
    }, "bytes that change all the time$kind");

    for my $size (0, 64, 4096) {
        survives(sub {
            my $path = "$folder/cut$kind$size";
            my $srv  = "Pipework::ReqRep$kind"->new($path, 8, 4, $kind ? () : 64);
            my $cli  = "Pipework::ReqRep${kind}::Client"->new($path);
            $cli->send(5) for 1 .. 2;
            $srv->recv;
            truncate $path, $size or die $!;
            eval { $cli->req_wait(1, 0.01) };
            eval { $srv->recv_wait(0.01) };
            eval { $cli->call(1, 0.01) };
            eval { $cli->pending };
            for my $method (qw(drain audit stats recover clear)) { eval { $srv->$method } }
        }, "a file that was cut to $size bytes$kind");
    }
}

# A peer in another language may send any flags and bytes. A received string with the flag is valid
# UTF-8.
{
    my $srv = Pipework::ReqRep->new("$folder/flags", 8, 4, 64);
    my $cli = Pipework::ReqRep::Client->new("$folder/flags");
    my @broken = ("\xff", "\xc3", "\xf8\x88\x80\x80\x80", "abc\xe9", "\xc0\x80");
    for my $bytes (@broken, "\xed\xa0\x80", '') {
        my $text = $bytes;
        require Encode;
        Encode::_utf8_on($text);
        no warnings;
        my $id = $cli->send($text);
        my ($data, $got) = $srv->recv;
        ok(!utf8::is_utf8($data) || utf8::valid($data), 'a request');
        $srv->reply($got, $text);
        my $response = $cli->get($id);
        ok(!utf8::is_utf8($response) || utf8::valid($response), 'a response');
    }
}
done_testing;
