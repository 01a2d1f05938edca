package Pipework::ReqRep::BlobMut;
use 5.026;
use strict;
use warnings;
use Pipework ();

our $VERSION = $Pipework::VERSION;

1;

__END__

=encoding utf8

=head1 NAME

Pipework::ReqRep::BlobMut - a draft of a blob, to be filled and frozen

=head1 SYNOPSIS

    use Pipework::ReqRep;

    my $srv   = Pipework::ReqRep->create(slots => 8);
    my $draft = $srv->blob(-s $0);
    open my $in, '<:raw', $0 or die $!;
    my $at = 0;
    while (my $read = read $in, my $piece, 65536) {
        $draft->write($at, $piece);
        $at += $read;
    }
    my $blob = $draft->freeze;
    print $blob->length, " bytes\n";

=head1 DESCRIPTION

Memory that only this process can access: C<blob> of L<Pipework::ReqRep> and its clients makes it.
Fill all of it, for it may hold bytes of an earlier blob of this process, and then C<freeze> it. A
draft that goes out of scope before that gives its memory back.

Perl code gets no scalar of this memory, because a scalar could change a blob after C<freeze>. So
C<write> copies, once.

No method waits. Each dies with C<Attempted to use a destroyed Pipework::ReqRep::BlobMut object> if
the object was destroyed.

=head1 METHODS

=head2 write($offset, $bytes)

Copies a string of bytes into the draft, from the byte C<$offset> on; a negative offset counts from
the end. Dies, and changes nothing, if the bytes do not fit, with C<Wide character in write> for
characters over 255, for a reference, after C<freeze>, and in a forked child. Returns nothing.

=head2 length

Its length in bytes, also after C<freeze>.

=head2 freeze

Makes a L<Pipework::ReqRep::Blob> of it: from now on nothing changes the bytes. The draft is of no
more use. Dies after C<freeze> and in a forked child, and with a L<Pipework::Error> of the kind
C<Corrupt> if a process has cut the memory short.

=head1 PROCESSES AND THREADS

A draft belongs to the process and the thread that made it. A forked child and a new thread cannot use it.

=cut
