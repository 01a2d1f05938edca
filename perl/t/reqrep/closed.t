# A program that closes every descriptor above 2, as a daemon does, and opens others that get the
# numbers: an eventfd of the program is not rung, emptied or closed in the place of one of pipework's.
use strict;
use warnings;
use Test::More;
use File::Temp qw(tempdir);
use POSIX ();
use Pipework::ReqRep;

alarm 120;
my $folder = tempdir(CLEANUP => 1);

# In a child, which has nothing else to lose.
sub in_child {
    my ($what, $work) = @_;
    defined(my $pid = fork) or die "fork: $!";
    if (!$pid) {
        my $fault = eval { $work->() } // $@ || 'no result';
        print STDERR "# $fault\n" if $fault ne 'whole';
        POSIX::_exit($fault eq 'whole' ? 0 : 1);
    }
    waitpid $pid, 0;
    return is($?, 0, $what);
}

sub close_all { POSIX::close($_) for 3 .. 255 }

# Eventfds as the program makes them: those of a channel that stays.
sub mine {
    my ($count) = @_;
    my @all = map { Pipework::ReqRep->new("$folder/mine$$-$_", 8, 64, 64) } 1 .. $count;
    $_->eventfd, $_->notify for @all;
    return @all;
}

sub pipes {
    return map { [POSIX::pipe()] } 1 .. 20;
}

sub fault_of_pipes {
    for (@_) {
        my ($from, $to) = @$_;
        defined POSIX::write($to, 'a message', 9) or return 'a pipe was closed';
        my $len = POSIX::read($from, my $got, 4096);
        return "a pipe was changed: $got" if $got ne 'a message';
    }
    return 'whole';
}

sub channel {
    my ($name) = @_;
    my $srv = Pipework::ReqRep->new("$folder/$name", 8, 64, 64);
    my $cli = Pipework::ReqRep::Client->new("$folder/$name");
    $srv->eventfd;
    $srv->reply_eventfd;
    $cli->req_eventfd_set($srv->fileno);
    $cli->eventfd_set($srv->reply_fileno);
    return ($srv, $cli);
}

in_child 'pipes, when the objects go' => sub {
    my ($srv, $cli) = channel('gone');
    close_all();
    my @pipes = pipes();
    undef $cli;
    undef $srv;
    return fault_of_pipes(@pipes);
};

in_child 'pipes, when the eventfds are rung and emptied' => sub {
    my ($srv, $cli) = channel('rung');
    close_all();
    my @pipes = pipes();
    for (1 .. 3) {
        $_->notify for $srv, $cli;
        $srv->reply_notify;
        return 'it was emptied' if grep { defined } map { $_->eventfd_consume } $srv, $cli;
    }
    return fault_of_pipes(@pipes);
};

in_child 'eventfds of other objects with the same numbers' => sub {
    my ($srv, $cli) = channel('other');
    close_all();
    my @mine = mine(6);
    $_->notify for $srv, $cli;
    $srv->reply_notify;
    $_->eventfd_consume for $srv, $cli;
    undef $cli;
    undef $srv;
    for (@mine) {
        my $count = $_->eventfd_consume // 'none';
        return "rung $count times" if $count ne 1;
    }
    return 'whole';
};

in_child 'another eventfd is made when it is asked for again' => sub {
    my ($srv, $cli) = channel('again');
    close_all();
    my @pipes  = pipes();
    my %theirs = map { ($_ => 1) } map { @$_ } @pipes;
    my $number = $srv->eventfd;
    return "$number is the program's" if $theirs{$number};
    $srv->notify;
    return 'it was not rung' if ($srv->eventfd_consume // 0) != 1;
    undef $srv;
    return fault_of_pipes(@pipes);
};
done_testing;
