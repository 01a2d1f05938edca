package Pipework::ReqRep;
use 5.026;
use strict;
use warnings;
use Pipework ();

our $VERSION = $Pipework::VERSION;

# One call defines the other three classes as well, as with the original.
require Pipework::ReqRep::Client;
require Pipework::ReqRep::Int;
require Pipework::ReqRep::Int::Client;
require Pipework::ReqRep::Stream;
require Pipework::ReqRep::Message;
require Pipework::ReqRep::Blob;
require Pipework::ReqRep::BlobMut;

Pipework::accept_versions($_, '0.07')
    for map { ($_, "${_}::Client") } 'Pipework::ReqRep', 'Pipework::ReqRep::Int';

# A handle owns its descriptor, and closes it when the program has done with it.
sub _handle {
    my ($fd) = @_;
    # Perl asks whether it is a terminal, which fails.
    local $!;
    CORE::open my $handle, '<&=', $fd or die "fd $fd: $!";
    return $handle;
}

sub doorbell { _handle($_[0]->_doorbell) }

{
    no warnings 'once';
    *Pipework::ReqRep::Int::doorbell = \&doorbell;
    for my $client (qw(Pipework::ReqRep::Client Pipework::ReqRep::Int::Client)) {
        no strict 'refs';
        *{"${client}::doorbell"}      = \&doorbell;
        *{"${client}::send_doorbell"} = sub { _handle($_[0]->_doorbell(1)) };
    }
}

1;

__END__

=encoding utf8

=head1 NAME

Pipework::ReqRep - requests and responses over shared memory

=head1 SYNOPSIS

    use Pipework::ReqRep;

    my $srv = Pipework::ReqRep->create(path => 'rr.shm', slots => 64);
    if (!fork) {
        # A server. Any number of them, in any number of processes, share the requests.
        while (my ($req, $id) = $srv->recv_wait) {
            $srv->reply($id, uc $req);
            last if $req eq 'stop';
        }
        exit;
    }

    # A client, in any process.
    my $cli  = Pipework::ReqRep::Client->open(path => 'rr.shm');
    my $resp = $cli->call('hello', timeout => 5);

    # Several at a time.
    my $id1 = $cli->send('one');
    my $id2 = $cli->send('two');
    print $cli->get_wait($id2, timeout => 5), $cli->get_wait($id1, timeout => 5);
    $cli->req('stop');
    $srv->unlink;

=head1 DESCRIPTION

Clients put requests into a segment of shared memory, each request goes to one of the servers, and
each response goes back to the client that asked. There is no broker. Any process may be killed at
any instruction: a caller learns of the death of its server within 250 ms, and the slots that the
dead process held are taken back.

This module has the interface of Data::ReqRep::Shared: a program runs after the names of its modules
are changed. F<COMPAT.md> says what differs, and why. New programs make their objects with C<create>
and C<open>, whose arguments have names.

There are four classes, which this module loads: servers of strings are described here and clients
in L<Pipework::ReqRep::Client>; servers and clients of numbers in L<Pipework::ReqRep::Int> and
L<Pipework::ReqRep::Int::Client>. Large data goes in blobs: memory that processes pass on without a
copy, see L</BLOBS>.

Strings may have any bytes. A string with Perl's UTF-8 flag arrives as one, unless its bytes are not
valid UTF-8, as those of a peer in another language may be. Undef is the empty string, with the
usual warning. References and overloaded objects are sent as their text.

An I<id> is a number, never 0, that identifies a call. A server gets the same one that C<send> has
returned.

=head2 Waits

C<$secs> at the end of a call is a time in seconds, alone or by name: C<5> or C<< timeout => 5 >>.
Fractions count; undef, absent or negative waits for ever, 0 tries once. Signal handlers run in
every wait. One that returns does not end it, one that dies does, and one may use or destroy the
object.

=head2 Failures

If a call gives undef or the empty list, C<$!> says why, and C<Pipework::error()> is a number and a
text in one, kept until the next failure. C<$!> is EAGAIN if nothing is there now, ETIMEDOUT when
the time was over, ECONNRESET if the process that had the request has died, ECANCELED if a server
gave the request up or cleared it, ESTALE for an id that is over or not this object's, ENOTCONN if
the channel has no server and the client needs one, EPIPE once the server was stopped, EUSERS if as
many clients and servers are attached as the segment has C<members>. After ECANCELED,
C<Pipework::reason()> is the server's reason.

Constructors die with C<CLASS-E<gt>METHOD: PATH: REASON>, and C<$!> is set. Methods that
the original does not have die with a L<Pipework::Error> instead of returning undef.

A call on an object of another class dies with C<Expected a CLASS object>, and one on an object that
was destroyed with C<Attempted to use a destroyed CLASS object>.

=head2 Processes and threads

An object attaches to its segment with the first call that needs it. A forked child may use what it
inherits, as a member of its own: calls in progress stay the parent's. A child may answer a
request that its parent has taken; it is the child's then. Threads share a client or a server.

=head1 CONSTRUCTORS

=head2 create(path => $path, slots => $count, ...)

=head2 open_or_create(path => $path, slots => $count, ...)

C<create> makes a segment, and dies with EEXIST in C<$!> if its path exists. C<open_or_create> opens
the segment that is there, which must have the sizes that were named, or makes it: if several
processes call it at the same time, one of them does. Neither waits. The arguments, each optional:

    path            where its file is. A path in /dev/shm is in memory only; the kernel writes
                    any other to the disk as well. Without one, the segment is for processes that
                    are forked, and for those that get its descriptor, memfd
    slots           calls in progress at a time, 1 to 2**20: 256
    request_bytes   the longest request that a slot holds: 4096. a longer one lies in a file
    reply_bytes     the longest response of a server in Perl: 4096
    queue           places of the ring of waiting requests: twice the slots
    members         clients and servers that are attached at a time, 1 to 65535: 256
    mode            of the file: 0600
    sparse          true: memory is taken when it is first used, and not at once
    blobs           how many blobs a message can carry, 0 to 8: 8
    blob_pool       bytes of shared memory that this object keeps for its next blobs after
                    earlier ones were freed: 128 MiB
    blob_limit      bytes of blobs, copies and drafts that this object may hold at a time: no limit

=head2 open(path => $path), open(fd => $fd)

Opens a segment that exists, by its path or a descriptor, which stays the caller's.
C<< any_owner => 1 >> opens one that belongs to another user: that user is trusted not to disturb.
C<blob_pool> and C<blob_limit> are as for C<create>, and each object's own.

=head2 new($path, $req_cap, $resp_slots, $resp_size [, $arena [, $mode]])

Opens the segment at C<$path> with any sizes, or makes it: for other sizes, C<unlink> the
old one first. An empty file of this user, such as L<File::Temp> makes, is replaced by a new
segment. C<$path> undef makes one without a path.

C<$resp_slots> is how many calls may be in progress at a time, 1 to 2**20. C<$resp_size> is the
longest response in bytes. C<$arena> is the longest request in bytes: 256 times C<$req_cap> if it is
absent, raised to 4096 and cut to 2**30. The ring of waiting requests has C<$req_cap> places,
rounded up to a power of two and to at least twice the slots. C<$mode> is the mode of the file, 0600
if it is absent. It has 1024 members.

Does not wait. For a file that is no segment, which stays as it is, the reason has C<invalid or
incompatible>.

=head2 new_memfd($name, $req_cap, $resp_slots, $resp_size [, $arena])

Makes a segment without a path. The name is for people, in F</proc>.

=head2 new_from_fd($fd)

As C<< open(fd => $fd) >>.

=head1 REQUESTS

=head2 recv

=head2 recv_wait([$secs])

The next request: C<($data, $id)>, in scalar context the id. The empty list if no request is there,
or none came in time. C<recv> does not wait.

=head2 recv_multi($n)

=head2 recv_wait_multi($n [, $secs])

=head2 drain([$max])

Up to C<$n> or C<$max> requests at once: C<($data1, $id1, $data2, $id2, ...)>. C<recv_wait_multi> waits for
the first; the others do not wait. The empty list if no request is there.

=head2 reply($id, $response [, $secs] [, blobs => [...]])

Answers a request. True if the client has not cancelled it, though it may have died since. False if
it has, and C<$!> is left alone; false with ESTALE and C<Stale> in C<Pipework::error> if the id is
not that of an open request: it was answered before, or belongs to another process or object. Only
the object that has received a request can answer it, even if the same process has another object
for the segment. Dies with C<CLASS: response too long (max N bytes)>, or C<CLASS: invalid slot
index> for an id that no call can have; then the request is still to be answered. So it is if
C<reply> returns false with EMSGSIZE, because of more blobs than the segment allows.

It does not wait, except for the client to take a C<part> that was given before. If it does not
within C<$secs>, undef, and the request is still to be answered; so it is if a signal handler dies.
Without C<$secs> the request is given up after 10 seconds: false, with ETIMEDOUT.

=head2 part($id, $bytes [, $secs] [, blobs => [...]])

Gives the client a part of the response. More parts may follow, and C<reply> ends the response; its
own data may be empty. A client that does not ask for parts gets all of them as one response. Waits
until the client has taken the part before, as C<reply> does: C<$secs> at most, and without them 10
seconds, after which the request is given up. True if it was given, false as C<reply>, undef if
C<$secs> were over. Dies as C<reply>.

=head2 flush($id [, $secs])

Waits until the client has taken the part that was given last; the time and the return value are as
for C<part>. Call it before C<fail>, so that its reason arrives.

=head2 fail($id [, $reason])

Gives a request up: its caller gets undef and ECANCELED, and the reason, which is text, cut to the
length of a response. True or false as C<reply>. It does not wait: it overtakes a part that the
client has not taken yet, and the reason is lost then. Call C<flush> first.

=head2 is_wanted($id)

False once the client has cancelled the call or has died, and if the id is not that of an open request. A server
that asks repeatedly notices a death within 250 ms.

=head2 redeliveries($id)

How many servers have died with this request; undef if the id is not that of an open request. It is more than 0
only if the client was opened with C<redeliveries>.

=head2 adopt($id)

In a forked child, makes a request its own that the parent has taken. C<reply>, C<part>, C<fail> and
C<is_wanted> do so by themselves; until then it fails if the parent ends. True, or false if it
cannot be had.

=head2 clear

Ends all calls that no server has taken. Such a call keeps its slot until its client calls C<get>,
which returns undef. Returns nothing.

=head2 stop

From now on C<recv> and the like return the empty list at once, with EPIPE, in this process; other
servers go on. Requests that were taken can be answered. May be called in a signal handler. Returns
nothing.

    $SIG{TERM} = sub { $srv->stop };    # the request in progress is answered

=head1 BLOBS

A blob is shared memory that is filled once and then read in place by every process that holds it: a
L<Pipework::ReqRep::Blob>. C<< blobs => [$blob, ...] >> at the end of C<reply> and C<part>, and of all
methods of a client that send, attaches up to 8 blobs. The message names them and holds them, so the
program may drop them as soon as the method returns. Anything but a reference to an array of blobs
dies, and nothing is sent. More blobs than the segment allows are C<TooLong>, EMSGSIZE in C<$!>. A blob
of another segment, and one whose C<is_copied> is true, is copied into a new one when it is sent.

The files lie in a folder beside the segment, C<PATH.> and 16 digits and C<.blobs>, or under
F</dev/shm/pipework-UID> if the segment has no path. What an object keeps for its next blobs is freed
with the object. Files of processes that were killed are freed by C<recover>, by the next process that
notices the death, or by C<pipework doctor --yes>. If all processes of a segment without a path were
killed, the next process of the user that makes the first blob of another such segment removes the files.

=head2 blob($length)

Makes a draft of so many bytes to be filled and frozen, a L<Pipework::ReqRep::BlobMut>. It does not wait
for other processes. The first blob of a size has its memory allocated here; later ones use it again.
Dies with a L<Pipework::Error>: C<Os>, with ENOSPC in C<$!> if there is no memory for it, or EMFILE
if no descriptor is left; C<TooLong> if this object would hold more than its C<blob_limit>. Dies
for a negative length.

=head2 blob_from($bytes)

Makes a L<Pipework::ReqRep::Blob> of a string, which it copies once. Dies as C<blob>, with C<Wide character
in blob_from> for characters over 255, and for a reference.

=head2 blobs($id)

The blobs that came with a request: a list of L<Pipework::ReqRep::Blob> objects in their order, in
scalar context their number. Call it before the request is answered; the objects stay after that. It
does not wait. Dies with a L<Pipework::Error>: C<Stale> if the id is not that of an open request;
C<TooLong>, C<Corrupt> or C<Os> if a blob cannot be opened.

=head1 EVENT LOOPS

=head2 doorbell

A handle that is readable while a request waits, and once the server was stopped. Keep it for as
long as the loop watches it, and do not read from it. When it is readable, call C<recv> until it
returns nothing. Clients need not ring it. A forked child asks for a doorbell of its own. Dies with
a L<Pipework::Error> if no descriptor is left.

    # EV
    my $bell = $srv->doorbell;
    my $w = EV::io(fileno $bell, EV::READ, sub {
        while (my ($req, $id) = $srv->recv) { $srv->reply($id, process($req)) }
    });

    # AnyEvent
    my $w = AnyEvent->io(fh => $bell, poll => 'r', cb => sub { ... });

    # IO::Async
    $loop->watch_io(handle => $bell, on_read_ready => sub { ... });

=head2 eventfd, eventfd_set($fd), eventfd_consume, fileno, notify

=head2 reply_eventfd, reply_eventfd_set($fd), reply_eventfd_consume, reply_fileno, reply_notify

Eventfds that the program rings, one for requests and one for responses; C<send> and C<reply> do not
ring them. C<eventfd> makes one, and returns its number, the same each time, unless the program has
closed it: then it makes another one. Make both before a fork, and pass their numbers to the child's
objects with C<eventfd_set>, which dies if the number is no eventfd, and changes nothing if it is the
object's own. C<fileno> is the number, -1 without one.
C<eventfd_consume> returns how often it was rung, undef for never. C<notify> rings, and does nothing
without an eventfd.

=head1 THE SEGMENT

=head2 size, is_empty, capacity, resp_slots, resp_size

How many requests wait and can be received now; whether none wait; places of the ring; and the
sizes that it was made with. A call that has ended without a server does not count.

=head2 path, memfd

Its path, undef without one; its descriptor, -1 if it has a path.

=head2 stats

A reference to a hash: C<size capacity resp_slots resp_data_max mmap_size requests replies send_full
recv_empty recoveries arena_cap arena_used recv_waiters send_waiters slot_waiters>, and C<cancelled
dead_members redelivered blob_bytes_held blobs_copied>. C<recoveries> is slots taken back from the dead, C<arena_cap> the longest
request; waiters and C<arena_used> are not counted, and are 0. C<blob_bytes_held> is bytes of the blobs,
copies and drafts that this object holds, and C<blobs_copied> how often it has received a blob as a copy, as C<is_copied>
says.

=head2 geometry

The sizes that it was made with: a reference to a hash of
C<slots queue request_bytes reply_bytes members blobs integers>. C<CLASS-E<gt>geometry($path)> is that of
a file, and dies with a L<Pipework::Error>.

=head2 members

The attached clients and servers: a list of references to hashes with
C<number role pid since alive>.

=head2 audit

How many slots are in each state: a reference to a hash of C<free filling waiting taken dropped
in_parts done damaged orphaned unqueued entries>.

=head2 recover

Takes back what dead members held, as clients do when they wait; returns how many had died.

=head2 sync, unlink

Writes the segment to its storage; removes its name, if that is still its own, and frees the blobs of
processes that have ended. A file that is gone is no error, and an object without a path dies.
C<CLASS-E<gt>unlink($path)> removes any. They return nothing.

=head1 SEE ALSO

L<Pipework::ReqRep::Client>, L<Pipework::ReqRep::Int>, L<Pipework::ReqRep::Blob>, L<Pipework::Error>

=cut
