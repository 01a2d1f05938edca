# Ends on handles and descriptors that are there, and on FIFOs.
use strict;
use warnings;
use Test::More;
use FindBin ();
use lib "$FindBin::Bin/..";
use Asleep;
use Processes;
use Fcntl;
use File::Temp qw(tempdir);
use POSIX ();
use Pipework::Atomic;

alarm 120;

my $class = 'Pipework::Atomic';
my $dir = tempdir(CLEANUP => 1);

sub ends { pipe(my $rh, my $wh) or die; return ($rh, $wh) }

subtest 'from_fh' => sub {
    my ($rh, $wh) = ends();
    my ($r, $w) = ($class->from_fh($rh), $class->from_fh($wh));
    is_deeply([$r->is_reader, $w->is_writer], [1, 1], 'the mode is found out');
    isnt(fileno $r->rh, fileno $rh, 'a clone is kept');
    close $_ for $rh, $wh;
    $w->write_message('x');
    is($r->read_message, 'x', 'which works on');
    my ($rh2, $wh2) = ends();
    $r = $class->from_fh('<&', $rh2, read_size => 7);
    $w = $class->from_fh('>&', $wh2);
    is($r->read_size, 7, 'options');
    $w->write_message('y');
    is($r->read_message, 'y', 'with a mode');
    fcntl($_, F_SETFL, O_NONBLOCK) for ends();
    my ($rh3, $wh3) = ends();
    fcntl($_, F_SETFL, O_NONBLOCK) for $rh3, $wh3;
    is_deeply(
        [$class->from_fh($rh3)->is_reader, $class->from_fh($wh3)->is_writer],
        [1, 1], 'O_NONBLOCK does no harm'
    );
    ok(fcntl($wh3, F_GETFL, 0) & O_NONBLOCK, 'and stays');
};

subtest 'the same number' => sub {
    for my $flag (0, FD_CLOEXEC) {
        my ($rh, $wh) = ends();
        fcntl($_, F_SETFD, $flag) or die for $rh, $wh;
        my $w = $class->from_fh('>&=', $wh);
        my $r = $class->from_fd('<&=', fileno $rh);
        is(fileno $w->wh, fileno $wh, 'of a handle');
        is(fileno $r->rh, fileno $rh, 'of a number');
        is(0 + fcntl($wh, F_GETFD, 0), $flag, 'close-on-exec as it was');
        is(0 + fcntl($rh, F_GETFD, 0), $flag, 'close-on-exec as it was');
        $w->write_message('same');
        is($r->read_message, 'same', 'it works');
    }
};

subtest 'from_fd' => sub {
    my ($rh, $wh) = ends();
    my $w = $class->from_fd('>&', fileno $wh);
    my $r = $class->from_fd('<&', fileno $rh, mixed_data_mode => 1);
    $w->set_mixed_data_mode;
    $w->write_message('x');
    is_deeply([$r->get_line_burst_or_data], [message => 'x'], 'a message');
    for my $fd (999, -1, 2**31, 2**32, '9' x 20, 'STDIN', undef, '1e3') {
        ok(!eval { $class->from_fd('>&', $fd); 1 }, 'no descriptor');
        my $shown = $fd // 'undef';
        like($@, qr/^Could not open \(>&\) fd\Q$shown\E: Bad file descriptor at \Q$0/, 'words');
    }
    open my $file, '<', $0 or die;
    ok(!eval { $class->from_fd('<&', fileno $file); 1 }, 'no pipe');
    like($@, qr/^Filehandle is not a pipe \(-p check\) at \Q$0/, 'words');
    my $number = POSIX::open($0);
    ok(!eval { $class->from_fd('<&=', $number); 1 }, 'no pipe');
    ok(POSIX::close($number), 'what is refused is not closed');
};

subtest 'what is refused' => sub {
    open my $file, '<', $0 or die;
    for my $wrong ($file, undef, 'nothing', {}) {
        no warnings;
        ok(!eval { $class->from_fh($wrong); 1 }, 'no pipe');
        like($@, qr/^Filehandle is not a pipe \(-p check\) at \Q$0/, 'words');
    }
    my ($rh, $wh) = ends();
    for my $mode ('>', '+<', '<&&', '') {
        ok(!eval { $class->from_fh($mode, $wh); 1 }, 'no mode');
        like($@, qr/^Invalid mode: \Q$mode\E at \Q$0/, 'words');
        ok(!eval { $class->from_fd($mode, fileno $wh); 1 }, 'no mode');
        like($@, qr/^Invalid mode: \Q$mode\E at \Q$0/, 'words');
    }
    POSIX::mkfifo("$dir/both", 0600) or die;
    open my $both, '+<', "$dir/both" or die;
    ok(!eval { $class->from_fh($both); 1 }, 'open for both');
    like($@, qr/^Could not determine filehandle mode, please specify '>&' or '<&' at \Q$0/, 'words');
    is($class->from_fh('<&', $both)->is_reader, 1, 'as the message says');
    ok(!eval { $class->from_fh('>&', $rh); 1 }, 'the wrong direction');
    like($@, qr/other direction/, 'words');
};

subtest 'standard handles' => sub {
    my ($r, $w) = $class->pair;
    my $pid = fork // die;
    if (!$pid) {
        open(STDOUT, '>&', $w->wh) or die;
        exec $^X, '-w', (map { "-I$_" } @INC), '-MPipework::Atomic', '-e',
            'Pipework::Atomic->from_fh(q(>&=), \*STDOUT)->write_message("from a child")' or die;
    }
    $w->close;
    is($r->read_message, 'from a child', 'STDOUT of a program');
    is(status($pid), 0, 'its status');
};

subtest 'close-on-exec' => sub {
    my ($r, $w) = $class->pair;
    ok(fcntl($w->wh, F_GETFD, 0) & FD_CLOEXEC, 'as Perl does');
    local $^F = 100;
    my ($r2, $w2) = $class->pair;
    ok(!(fcntl($w2->wh, F_GETFD, 0) & FD_CLOEXEC), 'unless $^F says otherwise');
};

subtest 'FIFOs' => sub {
    my $path = "$dir/fifo";
    POSIX::mkfifo($path, 0600) or die;
    my $r = $class->read_fifo($path);
    my $w = $class->write_fifo($path);
    is_deeply([$r->is_reader, $w->is_writer], [1, 1], 'ends');
    ok(!(fcntl($w->wh, F_GETFL, 0) & O_NONBLOCK), 'it blocks');
    ok(fcntl($w->wh, F_GETFD, 0) & FD_CLOEXEC, 'close-on-exec');
    $w->write_message('one');
    $w->close;
    is($r->read_message, 'one', 'a message');
    $r->blocking(0);
    is($r->eof, 0, 'it never ends');
    is_deeply([$r->read_message], [], 'there is nothing');
    symlink $path, "$dir/link" or die;
    is($class->write_fifo("$dir/link", mixed_data_mode => 1)->is_writer, 1, 'by a symbolic link');

    for my $method (qw(read_fifo write_fifo)) {
        for my $wrong ($0, "$dir/none") {
            ok(!eval { $class->$method($wrong); 1 }, 'no FIFO');
            like($@, qr/^File '\Q$wrong\E' is not a pipe \(-p check\) at \Q$0/, 'words');
        }
        ok(!eval { $class->$method("$path\0"); 1 }, 'a NUL');
    }
};

subtest 'a writer waits for its reader' => sub {
    my $path = "$dir/late";
    POSIX::mkfifo($path, 0600) or die;
    my $pid = child {
        until_asleep;
        my $r = $class->read_fifo_to_end($path);
        $r->read_message eq 'waited' ? 0 : 1;
    };
    my $w = $class->write_fifo($path);
    $w->write_message('waited');
    $w->close;
    is(status($pid), 0, 'and sends to it');
};

subtest 'FIFOs that end, and those that go on' => sub {
    my $path = "$dir/ours";
    POSIX::mkfifo($path, 0600) or die;
    my $r = $class->read_fifo_to_end($path);
    $r->blocking(0);
    is($r->eof, 0, 'no writer has come yet');
    $class->write_fifo($path)->write_message('only');
    $r->blocking(1);
    is($r->read_message, 'only', 'a message');
    is($r->eof, 1, 'the last writer has left');
    $r = $class->listen_fifo($path, mixed_data_mode => 1);

    for my $text (1, 2) {
        $class->write_fifo($path, mixed_data_mode => 1)->write_message($text);
        is($r->next_item(5)->{data}, $text, 'a writer');
    }
    is($r->eof, 0, 'it never ends');
    ok(!eval { $class->listen_fifo("$dir/none"); 1 }, 'no FIFO');
    isa_ok($@, 'Pipework::Error');
};

subtest 'a handle that the program closes' => sub {
    my ($r, $w) = $class->pair;
    $w->blocking(0);
    $w->write_message('x' x 100_000);
    is($w->pending_output, 1, 'something is pending');
    my $number = fileno $w->wh;
    close $w->wh;
    open my $file, '+>', "$dir/file" or die;
    is(fileno $file, $number, 'another file has its number');
    ok(!eval { $w->write_message('y'); 1 }, 'closed');
    is($w->pending_output, 0, 'nothing is left');
    undef $w;
    is(-s $file, 0, 'nothing was written there');
    close $r->rh;
    ok(!eval { $r->read_message; 1 } && $@ =~ /^Not a read handle/, 'closed');
};

# A number that is closed under its object, and stands for another file then.
subtest 'a number that stands for another file' => sub {
    my $bad = 'Bad file descriptor';
    my %loses = (
        write_message => sub { $_[0]->write_message('y') },
        send_many => sub { $_[0]->send_many('y', 'z') },
        write_burst => sub { $_[0]->write_burst('y') },
        flush => sub { $_[0]->flush },
        'flush that waits' => sub { $_[0]->flush(blocking => 1) },
        mode => sub { $_[0]->set_mixed_data_mode },
        close => sub { $_[0]->close },
        undef => sub { undef $_[0] },
    );
    for my $how (sort keys %loses) {
        for my $by_perl (0, 1) {
            my ($r, $w) = $class->pair;
            $w->blocking(0);
            $w->write_message('x' x 100_000);
            my $number = fileno $w->wh;
            my $file;
            if ($by_perl) {
                close $w->wh;
                open $w->{wh}, '>', "$dir/stranger" or die;
                $file = $w->{wh};
            } else {
                POSIX::close($number);
                open $file, '>', "$dir/stranger" or die;
            }
            is(fileno $file, $number, "$how: the number");
            my @warnings;
            local $SIG{__WARN__} = sub { push @warnings, @_ };
            $! = 0;
            my $lived = eval { $loses{$how}->($w); 1 };
            my $errno = 0 + $!;
            if ($how eq 'undef') {
                is_deeply(
                    \@warnings,
                    [
                        'Pipework::Atomic: pending messages are lost: '
                            . "Disconnected pipe: $bad\n"
                    ],
                    'warned of'
                );
            } else {
                ok(!$lived, 'dies');
                my $words =
                    $how =~ /write|send/
                    ? "Cannot call write on a pipe reader: $bad"
                    : "Disconnected pipe: $bad";
                like($@, qr/^$words/, 'words');
                is($errno, POSIX::EBADF, 'errno');
                is($w->pending_output, 0, 'nothing is pending');
                undef $w;
                is_deeply(\@warnings, [], 'there is one report');
            }
            is(-s "$dir/stranger", 0, 'nothing is in the other file');
        }
    }
    for my $method (qw(read_message recv next_item eof fill_buffer)) {
        my ($r, $w) = $class->pair;
        my $number = fileno $r->rh;
        POSIX::close($number);
        my ($other, $from) = ends();
        is(fileno $other, $number, "$method: the number");
        syswrite $from, 'bytes';
        $! = 0;
        ok(!eval { $r->$method; 1 }, 'dies');
        is(0 + $!, POSIX::EBADF, 'errno');
        like($@, qr/^Not a read handle: $bad at \Q$0/, 'words');
        sysread $other, my $bytes, 10;
        is($bytes, 'bytes', 'they stay in the other pipe');
    }
};

subtest 'layers' => sub {
    my ($rh, $wh) = ends();
    binmode $_, ':utf8' for $rh, $wh;
    my ($r, $w) = ($class->from_fh('<&=', $rh), $class->from_fh('>&=', $wh));
    $w->write_message("\xE4\xFF");
    is($r->read_message, "\xE4\xFF", 'bytes are bytes');
};

done_testing;
