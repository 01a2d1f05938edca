package Pipework::ReqRep::Stream;
use 5.026;
use strict;
use warnings;
use Pipework ();
use overload '<>' => sub { $_[0]->next }, bool => sub { 1 }, fallback => 1;

our $VERSION = $Pipework::VERSION;

1;

__END__

=encoding utf8

=head1 NAME

Pipework::ReqRep::Stream - a response that comes part by part

=head1 SYNOPSIS

    use Pipework::ReqRep;

    my $srv = Pipework::ReqRep->create(path => 'rr.shm');
    if (!fork) {
        my ($req, $id) = $srv->recv_wait;
        $srv->part($id, "part $_ of $req\n") for 1 .. 3;
        $srv->reply($id, '');
        exit;
    }
    my $cli    = Pipework::ReqRep::Client->open(path => 'rr.shm');
    my $stream = $cli->stream('the list', timeout => 5);
    while (defined(my $part = <$stream>)) { print $part }

=head1 DESCRIPTION

The object that C<stream> of L<Pipework::ReqRep::Client> returns. A stream that goes out of scope
before its end cancels the call: the server's next C<part> returns false. A new thread does not get
the stream.

=head1 METHODS

=head2 next([$secs])

The next part, which may be empty; undef after the last. Waits for the time that C<stream> was
given, unless it has one of its own. Dies with a L<Pipework::Error>: after C<TimedOut> the stream
goes on, after anything else it is over. C<E<lt>$streamE<gt>> does the same. Blobs of the part are
dropped.

=head2 next_message([$secs])

As C<next>, but returns a L<Pipework::ReqRep::Message>, which has the part and its blobs. Dies, too, if a
blob cannot be opened: C<TooLong>, C<Corrupt> or C<Os>.

=cut
