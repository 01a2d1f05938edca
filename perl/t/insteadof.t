# Programs of the originals, unchanged, with Pipework::InsteadOf.
use strict;
use warnings;
use Cwd qw(abs_path);
use File::Temp qw(tempdir);
use FindBin ();
use lib $FindBin::Bin;
use Processes;
use Test::More;
use Pipework::InsteadOf ();

alarm 120;
my $folder = tempdir(CLEANUP => 1);

# The output of a program that does not name Pipework, run with -MPipework::InsteadOf and `instead`.
sub output {
    my ($instead, $program) = @_;
    open my $file, '>', "$folder/program.pl" or die $!;
    print {$file} "use strict; use warnings;\n", $program;
    close $file or die $!;
    return output_of($folder, '-w', "-MPipework::InsteadOf$instead", 'program.pl');
}

my %programs = (
    'Atomic::Pipe' => [<<'PROGRAM', "Atomic::Pipe 0.027 8192\nhello\nExpected"],
use Atomic::Pipe 0.026;
my ($r, $w) = Atomic::Pipe->pair;
print ref $r, ' ', Atomic::Pipe->VERSION, ' ', Atomic::Pipe::PIPE_BUF * 2, "\n";
my $pid = fork // die $!;
if (!$pid) { $w->write_message('hello'); exit }
$w->close;
print $r->read_message, "\n";
waitpid $pid, 0;
package Mine { use parent 'Atomic::Pipe' }
my ($mine) = Mine->pair;
print 'Expected' if $mine->isa('Mine') && $mine->isa('Atomic::Pipe');
PROGRAM
    'Data::ReqRep::Shared' => [<<'PROGRAM', <<'OUTPUT'],
use Data::ReqRep::Shared 0.05;
my $srv = Data::ReqRep::Shared->new('rr.shm', 64, 8, 100);
my $cli = Data::ReqRep::Shared::Client->new('rr.shm');
my $id  = $cli->send('hello');
my ($data, $got) = $srv->recv;
$srv->reply($got, uc $data);
print join ' ', ref $srv, ref $cli, $cli->get($id), "\n";
eval { Data::ReqRep::Shared::Client::send($srv, 'x') };
print $@ =~ /^(Expected a Data::ReqRep::Shared::Client object)/, "\n";
eval { Data::ReqRep::Shared->new("/no/such/folder/rr", 64, 8, 100) };
print $@ =~ /^(Data::ReqRep::Shared->new)/, "\n";
PROGRAM
Data::ReqRep::Shared Data::ReqRep::Shared::Client HELLO 
Expected a Data::ReqRep::Shared::Client object
Data::ReqRep::Shared->new
OUTPUT
    'Data::ReqRep::Shared::Int' => [<<'PROGRAM', <<'OUTPUT'],
use Data::ReqRep::Shared::Int;
my $srv = Data::ReqRep::Shared::Int->new('int.shm', 64, 8);
my $cli = Data::ReqRep::Shared::Int::Client->new('int.shm');
my $id  = $cli->send(-7);
my ($number, $got) = $srv->recv;
$srv->reply($got, $number * 2);
print join ' ', ref $srv, ref $cli, $cli->get($id);
print "\n";
PROGRAM
Data::ReqRep::Shared::Int Data::ReqRep::Shared::Int::Client -14
OUTPUT
    'IO::FD' => [<<'PROGRAM', <<'OUTPUT'],
use IO::FD v0.3.0 qw(:all);
use IO::FD 0.3.0 ();
use Fcntl;
die $! unless defined IO::FD::sysopen(my $fd, 'file', O_CREAT | O_RDWR);
IO::FD::syswrite $fd, 'a file';
sysseek $fd, 0, 0;
sysread $fd, my $buffer, 100;
print "$buffer\n";
local $SIG{__WARN__} = sub { print $_[0] =~ /^(.*?) at /, "\n" };
IO::FD::syswrite('x', 'y');
IO::FD::syswrite($fd, undef);
eval { local $/ = "\n"; IO::FD::readline($fd) };
print $@ =~ /^(.*?) at /, "\n";
PROGRAM
a file
IO::FD::syswrite called with something other than a file descriptor
IO::FD::syswrite called with use of uninitialized value
IO::FD::readline does not split lines
OUTPUT
    'IO::FD::DWIM' => [<<'PROGRAM', "both\nkinds\n"],
use IO::FD::DWIM ':all';
use Fcntl;
sysopen my $fd, 'dwim', O_CREAT | O_RDWR;
die 'not there' if IO::FD::fileno($fd) != $fd;
open my $fh, '+<', 'dwim' or die $!;
syswrite $fd, "both\nkinds\n";
while (defined(my $line = <$fh>)) { print $line }
PROGRAM
    'IO::FD::Constants' => [<<'PROGRAM', "(iss)* 1 -1\n"],
use IO::FD::Constants;
print POLLFD_PACKER, ' ', POLLIN, ' ', EVFILT_READ, "\n";
PROGRAM
);
for my $module (sort keys %programs) {
    my ($program, $output) = @{ $programs{$module} };
    is(output("=$module", $program), $output, "$module by name");
    unlink glob "$folder/*.shm";
    is(output('', $program), $output, "$module among all");
    unlink glob "$folder/*.shm";
}

# What IPC::Manager does when another process has gone: it looks into the hash.
is(output('=Atomic::Pipe', <<'PROGRAM'), "rh state out_buffer compression_dictionary_file none\n", 'keys of the hash');
use Atomic::Pipe;
my ($r, $w) = Atomic::Pipe->pair;
print join(' ', Atomic::Pipe::RH, Atomic::Pipe::STATE(), Atomic::Pipe::OUT_BUFFER,
    Atomic::Pipe::COMPRESSION_DICTIONARY_FILE, $r->{Atomic::Pipe::STATE()} // 'none'), "\n";
die if $r->{+Atomic::Pipe::RH} != $r->rh;
PROGRAM

# A child with -MModule, or with a module that loads an original, takes the stubs.
{
    local $ENV{PERL5LIB} = join ':', abs_path(Pipework::InsteadOf->folder), grep { defined } $ENV{PERL5LIB};
    mkdir "$folder/lib" or die $!;
    open my $file, '>', "$folder/lib/Loads.pm" or die $!;
    print {$file} "package Loads; use Atomic::Pipe 0.026; use IO::FD::DWIM; use Data::ReqRep::Shared::Client; 1;\n";
    close $file or die $!;
    for my $module (qw(Atomic::Pipe Loads)) {
        is(output_of($folder, '-w', '-Ilib', "-M$module", '-e', 'print ref((Atomic::Pipe->pair)[0])'),
            'Atomic::Pipe', "-M$module");
    }
    is(output_of($folder, '-w', "-M$_", '-e', "print $_->can('pair') || $_->can('new') || $_->can('sysopen') ? 1 : 0"),
        $_ eq 'IO::FD::Constants' ? 0 : 1, "-M$_")
        for 'Data::ReqRep::Shared', 'Data::ReqRep::Shared::Client', 'Data::ReqRep::Shared::Int',
        'Data::ReqRep::Shared::Int::Client', 'IO::FD', 'IO::FD::Constants', 'IO::FD::DWIM';
    is(output_of($folder, '-w', '-MPipework::InsteadOf', '-MAtomic::Pipe', '-e', 'print Atomic::Pipe->VERSION'),
        '0.027', 'both ways at once');
}

like(output('=No::Such', ''), qr/^Pipework::InsteadOf: nothing stands for No::Such/,
    'an unknown one');
like(output('=Atomic::Pipe', 'use Atomic::Pipe 99;'),
    qr/^Atomic::Pipe version 99 required--this is only version 0\.027/, 'a version too new');
like(output('=Atomic::Pipe', 'BEGIN { $INC{"IO/FD.pm"} = 1 } use Pipework::InsteadOf "IO::FD";'),
    qr/^IO::FD is loaded already/, 'one that is loaded');
like(output('=Data::ReqRep::Shared::Int', 'print Data::ReqRep::Shared::Client->can("req")'),
    qr/^CODE/, 'all modules of an original come with one');
is(output('=IO::FD', 'use Pipework::InsteadOf "IO::FD"; print IO::FD->VERSION'), 'v0.3.9',
    'twice');
done_testing;
