#!/usr/bin/env perl
# A tool server on stdin and stdout (JSON-RPC, one object a line) whose modules may print.
#
# A print on stdout breaks such servers: the host takes it for a broken answer. Here the
# answers go through stdout as messages, in mixed mode, and all other output, by the server
# or by a program that a tool starts, comes out as lines beside them.
#
#   perl eg/tool-server.pl            a host that starts the server and calls its tools
#   perl eg/tool-server.pl --serve    the server alone, for a host that gives it a pipe as stdout
use strict;
use warnings;
use IO::Handle;
use JSON::PP qw(encode_json decode_json);
use Pipework::Atomic;

exit serve() if ($ARGV[0] // '') eq '--serve';

# ------------------------------------------------------------------------------ the host

my ($r, $w) = Pipework::Atomic->pair(mixed_data_mode => 1);
pipe my $stdin, my $requests or die "pipe: $!\n";
$requests->autoflush(1);
my $server = fork // die "fork: $!\n";
if (!$server) {
    close $requests;
    open STDIN, '<&', $stdin or die "stdin: $!\n";
    open STDOUT, '>&', $w->wh or die "stdout: $!\n";
    exec $^X, (map { "-I$_" } @INC), $0, '--serve' or die "exec: $!\n";
}
# Each pipe ends with its last writer, and this process has one of the second.
close $stdin;
$w->close;

my ($last, @printed) = 0;
print '2 + 40 = ', call(add => 2, 40), "\n";
print 'this folder: ', call(disk_usage => '.'), " KiB\n";
eval { call(add => 2); 1 } or print "refused: $@";
print "printed meanwhile:\n", @printed;
close $requests;    # the server ends
waitpid $server, 0;
exit($? ? 1 : 0);

# The result of a tool. Dies with its message if it fails, and if the server has ended.
sub call {
    my ($tool, @params) = @_;
    my %request = (jsonrpc => '2.0', id => ++$last, method => $tool, params => \@params);
    print {$requests} encode_json(\%request), "\n";
    while (my $item = $r->next_item) {
        push @printed, $item->{data} if $item->{type} eq 'line';
        next if $item->{type} ne 'message';
        my $answer = decode_json($item->{data});
        die $answer->{error}{message} if $answer->{error};
        return $answer->{result};
    }
}

# ------------------------------------------------------------------------------ the server

# Takes a request a line, until there are no more. Each answer is a message.
sub serve {
    my %tools = (
        add => sub {
            print "DEBUG: in add(), and this line was to be removed\n";
            die "no second number\n" if @_ < 2;
            return $_[0] + $_[1];
        },
        disk_usage => sub {
            system 'echo', 'progress: looking at', @_;
            open my $du, '-|', 'du', '-sk', @_ or die "du: $!\n";
            my ($size) = split ' ', readline($du) // die "no such folder\n";
            return $size + 0;
        },
    );
    my $answers = Pipework::Atomic->from_fh('>&=', \*STDOUT, mixed_data_mode => 1);
    STDOUT->autoflush(1);    # so that lines stay in order with messages
    while (my $line = <STDIN>) {
        my $request = decode_json($line);
        my %answer = (jsonrpc => '2.0', id => $request->{id});
        my $tool = $tools{$request->{method}} // sub { die "no such tool\n" };
        eval { $answer{result} = $tool->(@{$request->{params}}); 1 }
            or $answer{error} = {code => -32000, message => "$@"};
        $answers->write_message(encode_json(\%answer));
    }
    return 0;
}
