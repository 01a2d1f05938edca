package Pipework::ReqRep::Int::Client;
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

Pipework::ReqRep::Int::Client - the calling end of L<Pipework::ReqRep::Int>

=head1 SYNOPSIS

    use Pipework::ReqRep::Int;

    my $srv = Pipework::ReqRep::Int->create;
    my $cli = Pipework::ReqRep::Int::Client->open(fd => $srv->memfd);
    my $id  = $cli->send(42);
    my ($n, $same) = $srv->recv;
    $srv->reply($same, -$n);
    print $cli->get($id), "\n";

=head1 DESCRIPTION

As L<Pipework::ReqRep::Client>, with integers in the place of strings, and without C<stream>.

=cut
