package Pipework::ReqRep::Client;
use 5.026;
use strict;
use warnings;
use Pipework         ();
use Pipework::ReqRep ();

our $VERSION = $Pipework::VERSION;

1;

__END__

=encoding utf8

=head1 NAME

Pipework::ReqRep::Client - the calling end of L<Pipework::ReqRep>

=head1 SYNOPSIS

    use Pipework::ReqRep;

    my $srv = Pipework::ReqRep->create(path => 'rr.shm');
    if (!fork) {
        while (my ($req, $id) = $srv->recv_wait) {
            if ($req eq 'list') { $srv->part($id, "part $_\n") for 1 .. 3 }
            $srv->reply($id, 'end');
            last if $req eq 'stop';
        }
        exit;
    }

    my $cli  = Pipework::ReqRep::Client->open(path => 'rr.shm');
    my $resp = $cli->req_wait('hello', timeout => 5) // die "no response: $!";

    my $id = $cli->send('later');
    $resp = $cli->get_wait($id, timeout => 5);

    # With exceptions.
    eval { $resp = $cli->call('hello', timeout => 5); 1 } or warn $@->kind;

    # A response that comes part by part.
    my $stream = $cli->stream('list', timeout => 5);
    while (defined(my $part = $stream->next)) { print $part }
    $cli->req('stop');

=head1 DESCRIPTION

Strings, ids, times, failures, processes and threads are as L<Pipework::ReqRep> says.

=head1 CONSTRUCTORS

=head2 open(path => $path), open(fd => $fd)

Opens a segment that a server has made. Besides C<any_owner>, C<blob_pool> and C<blob_limit>, as L<< open of Pipework::ReqRep|Pipework::ReqRep/open(path => $path), open(fd => $fd) >> has it,
takes

=over

=item redeliveries => $count

How many times another server may get a request after a server has died with it, up to 3; 0 unless
it is given. For requests that may be carried out twice.

=item needs_server => $bool

Whether a call fails at once, with ENOTCONN, if no server is attached, instead of waiting for one.

=back

=head2 new($path)

=head2 new_from_fd($fd)

As C<open>, without these.

=head1 CALLS

Each method that sends takes C<< blobs => [$blob, ...] >> at its end, see L<Pipework::ReqRep/BLOBS>. The
methods whose names end with C<message> return the blobs of a response as well; with the others they
are dropped.

=head2 req($data)

=head2 req_wait($data, $secs)

Sends a request and waits for its response; the time is for both. Undef if the time is over, if its
server dies, or if it gives the request up; nothing stays behind then. Dies with C<CLASS: request
too long (max N bytes)>.

=head2 call($data [, $secs])

As C<req_wait>, but dies with a L<Pipework::Error>. Its request may be of any length.

=head2 call_message($data [, $secs])

As C<call>, but returns a L<Pipework::ReqRep::Message>, which has the response and its blobs. Dies as
C<call>; also if a blob of the response cannot be opened: C<TooLong>, C<Corrupt> or C<Os>.

=head2 send($data), send_notify($data)

=head2 send_wait($data [, $secs]), send_wait_notify($data [, $secs])

Sends a request and returns its id; undef if no slot is free, or none in time. C<send> does not
wait. Those that end with C<notify> ring the eventfd of requests then. Die as C<req>.

=head2 get($id)

=head2 get_wait($id [, $secs])

The response of a call. Undef if it has not come, and when the call is over: received, cancelled,
cleared, failed, or none of this object. C<get> does not wait. Dies with C<CLASS: invalid slot
index> for an id that no call of this segment can have.

=head2 get_message($id [, $secs])

As C<get_wait>, but returns a L<Pipework::ReqRep::Message>. Undef, too, if a blob of the response cannot
be opened; the call is over then.

=head2 recv_any([$secs])

Waits until any call ends: C<($response, $id)>, in scalar context the id. The response is undef if
the call has failed, and C<$!> says why. The empty list when the time is over, and at once if no
call is in progress.

=head2 recv_any_message([$secs])

As C<recv_any>, but C<($message, $id)>, with a L<Pipework::ReqRep::Message> or undef.

=head2 cancel($id)

Cancels a call. A response that is there already stays for C<get>. Returns nothing, and never dies.

=head2 forget($id)

Gives up the response of a call, and not the call: a server carries its request out, even after this
object or process has gone. False if the id is not that of a call in progress.

=head2 pending

How many calls of this object are in progress.

=head2 stream($data [, $secs])

Sends a request whose response comes part by part: a L<Pipework::ReqRep::Stream>. The time is for
sending, and for each part. Dies with a L<Pipework::Error>.

=head1 BLOBS

C<blob> and C<blob_from> are those of L<Pipework::ReqRep>.

=head1 EVENT LOOPS

=head2 doorbell

A handle that is readable while something can be received. When it is, call C<get> for each call
in progress, or C<recv_any(0)> until it gives nothing. See L<Pipework::ReqRep/doorbell>.

=head2 send_doorbell

The same, readable while a request can be sent: until C<send> finds no slot.

=head2 eventfd, eventfd_set($fd), eventfd_consume, fileno

The eventfd of responses, which servers ring with C<reply_notify>. See L<Pipework::ReqRep>.

=head2 notify, req_eventfd_set($fd), req_fileno

The eventfd of requests. C<notify> rings it.

=head1 THE SEGMENT

C<size>, C<is_empty>, C<capacity>, C<resp_slots>, C<resp_size>, C<path>, C<memfd>, C<stats>,
C<geometry>, C<members>, C<audit> and C<recover> are those of L<Pipework::ReqRep>.

=head1 DESTRUCTION

A client that goes out of scope leaves the segment. Servers carry out what it has sent.

=cut
