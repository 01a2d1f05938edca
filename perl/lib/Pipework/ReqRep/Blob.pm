package Pipework::ReqRep::Blob;
use 5.026;
use strict;
use warnings;
use Pipework ();

our $VERSION = $Pipework::VERSION;

1;

__END__

=encoding utf8

=head1 NAME

Pipework::ReqRep::Blob - bytes in shared memory that processes pass on without a copy

=head1 SYNOPSIS

    use Pipework::ReqRep;

    my $srv = Pipework::ReqRep->create(slots => 8);
    if (!fork) {
        my ($request, $id) = $srv->recv_wait;
        my ($page) = $srv->blobs($id);
        my $bytes = $page->map;                         # no copy
        my $lines = $$bytes =~ tr/\n//;
        $srv->reply($id, $lines, blobs => [$page]);     # handed on
        exit;
    }
    my $cli   = Pipework::ReqRep::Client->open(fd => $srv->memfd);
    my $page  = $cli->blob_from("a line\n" x 100_000);
    my $reply = $cli->call_message('count', timeout => 5, blobs => [$page]);
    my ($same) = $reply->blobs;
    print $reply->data, ' lines in ', $same->length, " bytes\n";

=head1 DESCRIPTION

A blob is shared memory that is filled once and then read in place by every process that holds it.
Its bytes never change. C<blob_from> and C<blob> of L<Pipework::ReqRep> and its clients make one.
C<< blobs => [$blob, ...] >> attaches blobs to a request, a reply or a part. A message only names
them, so they cost the same whatever their size.

A process holds a blob as long as it has an object or a map of it. A message holds a blob until it is
received. The memory is freed when the last holder has dropped it or died, at any instruction.

A blob has bytes, and no characters: encode text first. It cannot be stored by L<Storable> and the
like; attach it to a message.

No method waits for another process. A method of a destroyed object dies with C<Attempted to use a
destroyed Pipework::ReqRep::Blob object>.

=head1 METHODS

=head2 length

Its length in bytes.

=head2 bytes

A copy of its bytes.

=head2 substr($offset [, $length])

A copy of some of its bytes. Negative numbers count from the end, as in Perl's own C<substr>. Undef
and the usual warning if it begins outside of the blob.

=head2 map

A reference to a scalar that has the blob's bytes in place, without a copy. It is read-only: each
operation that would change it dies. It may outlive this object, and holds the blob until it is freed.

    my $bytes = $blob->map;
    my ($width, $height) = unpack 'N2', $$bytes;
    my $at = index $$bytes, "\n\n";
    open my $in, '<', $bytes or die $!;     # read it as a file
    print {$out} $$bytes;

Some operations of Perl copy: an assignment (C<my $copy = $$bytes>), C<return $$bytes>, and a pattern
that matches, which copies all of the string. So pass the reference on, and search long blobs with
C<index> or in pieces from C<substr>.

If no byte of the blob is 0, the scalar may be a copy, for instance if the length is a multiple of
4096: Perl needs a 0 that ends a string, and in shared memory there may be none behind the last byte.

=head2 is_copied

True if this process got its own copy of the blob, because another user owns its file or may change
it. C<blobs_copied> in C<stats> counts these copies.

=head2 check

Dies with a L<Pipework::Error> of the kind C<Corrupt> if bytes are lost, because a process has cut the
file short. The lost bytes read as 0. Otherwise it returns true.

=head1 PROCESSES AND THREADS

A forked child and a new thread may use the blobs and maps that they inherit. Each process and each
thread has its own hold of them: the memory stays until all have dropped theirs.

=head1 SEE ALSO

L<Pipework::ReqRep::BlobMut>, L<Pipework::ReqRep::Message>, L<Pipework::ReqRep>

=cut
