package Pipework::ReqRep::Int;
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

Pipework::ReqRep::Int - requests and responses that are single numbers

=head1 SYNOPSIS

    use Pipework::ReqRep::Int;

    my $srv = Pipework::ReqRep::Int->create(path => 'int.shm');
    if (!fork) {
        while (my ($n, $id) = $srv->recv_wait) {
            $srv->reply($id, $n * 2);
            last if !$n;
        }
        exit;
    }
    my $cli = Pipework::ReqRep::Int::Client->open(path => 'int.shm');
    print $cli->req(21), "\n";
    $cli->req(0);

=head1 DESCRIPTION

As L<Pipework::ReqRep>, with integers of 64 bits, negative ones too, instead of strings. Its clients
are of the class L<Pipework::ReqRep::Int::Client>. They have no parts; a reason for C<fail> is not
passed on. In the segment a number is eight bytes, in the byte order of the machine, and the longest
request and the longest reply have eight bytes: this identifies a segment of integers, and programs
in other languages can use it. A fraction is cut off. A number that is not from -2**63 to 2**63 - 1,
as infinity and NaN, dies with C<request: number out of range> or C<response: number out of range>;
then the request is still to be answered.

=head1 CONSTRUCTORS

=head2 create, open_or_create, open

=head2 new($path, $req_cap, $resp_slots [, $mode])

=head2 new_memfd($name, $req_cap, $resp_slots)

=head2 new_from_fd($fd)

As those of L<Pipework::ReqRep>, without C<request_bytes> and C<reply_bytes>. All its other methods
are here as well, except C<part> and C<flush>.

=cut
