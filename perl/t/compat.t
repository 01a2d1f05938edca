# Each name that a manual of the originals documents exists here, has a row in COMPAT.md under its
# original, and the test that the row names mentions it.
use strict;
use warnings;
use FindBin ();
use lib $FindBin::Bin;
use Checkout;
use Test::More;

my $root = root();
-e "$root/COMPAT.md" or plan skip_all => 'COMPAT.md is not here';

# By the heading in COMPAT.md: the classes here that must be able to do it, and the names.
my @shared = qw(
    size capacity is_empty resp_slots resp_size stats path memfd eventfd eventfd_set eventfd_consume
    notify fileno new new_from_fd
);
my @server = (
    @shared,
    qw(new_memfd recv recv_wait reply recv_multi recv_wait_multi drain clear sync unlink
        reply_eventfd reply_eventfd_set reply_eventfd_consume reply_notify reply_fileno)
);
my @client = (
    @shared,
    qw(req req_wait send send_wait get get_wait cancel send_notify send_wait_notify pending
        req_eventfd_set req_fileno)
);
my @documented = (
    ['Atomic::Pipe' => 'Pipework::Atomic', qw(
        PIPE_BUF HAVE_IO_SELECT new pair read_fifo write_fifo from_fh from_fd write_message
        read_message blocking pending_output flush eof close fits_in_burst write_burst rh wh
        read_size use_io_select fill_buffer size max_size resize resize_or_max is_reader is_writer
        clone_reader clone_writer reader writer set_mixed_data_mode get_line_burst_or_data
        compression compression_level compression_dictionary compression_dictionary_file
        keep_compressed set_compression set_compression_dictionary
        set_compression_dictionary_file set_keep_compressed
    )],
    ['Data::ReqRep::Shared' => 'Pipework::ReqRep', @server],
    ['Data::ReqRep::Shared' => 'Pipework::ReqRep::Int', @server],
    ['Data::ReqRep::Shared' => 'Pipework::ReqRep::Client', @client],
    ['Data::ReqRep::Shared' => 'Pipework::ReqRep::Int::Client', @client],
    ['IO::FD' => 'Pipework::FD', qw(
        socket socketpair bind listen accept accept4 accept_multiple connect getsockopt setsockopt
        getpeername getsockname sendfile sysopen sysopen4 open openat mktemp mkstemp sysseek pipe
        syspipe mkfifo mkfifoat dup dup2 close recv send sysread sysread3 sysread4 syswrite
        syswrite2 syswrite3 syswrite4 fcntl sysfcntl stat lstat pread pwrite ioctl sysioctl
        clock_gettime_monotonic select poll kqueue kevent pack_kevent sv_to_pointer pointer_to_sv SV
        readline shutdown fileno SOCK_NONBLOCK SOCK_CLOEXEC
    )],
    ['IO::FD::DWIM' => 'Pipework::FD::DWIM', qw(
        socket socketpair shutdown bind listen accept connect getsockopt setsockopt getpeername
        getsockname sysopen sysseek pipe close recv send sysread syswrite stat lstat fcntl ioctl
        readline fileno
    )],
);

# Rows of the sections whose heading has the name: first cell and last cell.
sub rows {
    my ($original) = @_;
    my @rows;
    for my $section (split /^## /m, slurp("$root/COMPAT.md")) {
        next if $section !~ /\A[^\n]*\b\Q$original\E\b(?!::)/ || $section =~ /\ARead this/;
        push @rows, map { [$_->[0], $_->[-1]] }
            map { [split /\s*\|\s*/, s/^\|\s*//r] } grep { /^\|/ } split /\n/, $section;
    }
    return @rows;
}

for (@documented) {
    my ($original, $class, @names) = @$_;
    eval "require $class; 1" or die $@;
    my @rows = rows($original);
    my @missing;
    for my $name (sort @names) {
        push @missing, "$class->can('$name')" if !$class->can($name);
        my ($row) = grep { $_->[0] =~ /`\Q$name\E\b/ } @rows;
        if (!$row) { push @missing, "COMPAT.md: a row of $name"; next }
        my @tests = $row->[1] =~ m{`([\w/]+\.t)`}g;
        my @found = grep { -e } map { ("$root/$_", "$root/t/reqrep/$_") } @tests;
        push @missing, "the tests of $name: $row->[1]" if !@tests || @found != @tests;
        push @missing, "$name in @found" if !grep { slurp($_) =~ /\b\Q$name\E\b/ } @found;
    }
    is_deeply(\@missing, [], "$class has what the manual of $original documents");
}

# The options of Atomic::Pipe.
for my $option (qw(
    mixed_data_mode compression compression_level compression_dictionary
    compression_dictionary_file keep_compressed use_io_select
)) {
    ok(scalar(grep { $_->[0] =~ /`$option`/ } rows('Atomic::Pipe')), "the option $option has a row");
}
done_testing;
