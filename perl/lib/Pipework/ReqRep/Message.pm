package Pipework::ReqRep::Message;
use 5.026;
use strict;
use warnings;
use Pipework ();

our $VERSION = $Pipework::VERSION;

sub data  { $_[0]{data} }
sub blobs { @{$_[0]{blobs}} }

1;

__END__

=encoding utf8

=head1 NAME

Pipework::ReqRep::Message - a response, or a part of one, with its blobs

=head1 SYNOPSIS

    use Pipework::ReqRep;

    my $srv = Pipework::ReqRep->create(slots => 8);
    my $cli = Pipework::ReqRep::Client->open(fd => $srv->memfd);
    my $id  = $cli->send('x', blobs => [$cli->blob_from('large')]);
    my ($data, $got) = $srv->recv;
    $srv->reply($got, 'y', blobs => [$srv->blobs($got)]);

    my $message = $cli->get_message($id);
    print $message->data, ' with ', map { $_->bytes } $message->blobs;

=head1 DESCRIPTION

What C<call_message>, C<get_message> and C<recv_any_message> of L<Pipework::ReqRep::Client> and
C<next_message> of L<Pipework::ReqRep::Stream> return. It keeps its blobs as long as it lives.

=head1 METHODS

=head2 data

The response or the part, as C<call> or C<next> returns it.

=head2 blobs

A list of the L<Pipework::ReqRep::Blob> objects that came with it, in their order; in scalar context
their number.

=cut
