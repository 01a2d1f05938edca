# The bytes of vectors/atomic, read with reads of every size, and written again where that is known.
use strict;
use warnings;
use Test::More;
use FindBin ();
use lib "$FindBin::Bin/..";
use Checkout;
use JSON::PP;
use Pipework::Atomic;

alarm 120;

my $checkout = checkout() // plan skip_all => 'vectors/atomic is in the repository';
my $folder = "$checkout/vectors/atomic";

# A text stands for bytes; an object for the numbers from `count_from` on, each with a space.
sub bytes_of {
    my $said = shift;
    return $said if !ref $said;
    my ($bytes, $number) = ('', $said->{count_from});
    $bytes .= $number++ . ' ' while length $bytes < $said->{len};
    return substr $bytes, 0, $said->{len};
}

my %kinds =
    (torn => 'Torn', too_long => 'TooLong', corrupt => 'Corrupt', incompatible => 'Incompatible');

sub expected {
    my $item = shift;
    my %found = (type => $item->{type});
    $found{data} = bytes_of($item->{data}) if $item->{type} ne 'torn';
    $found{writer} = join ':', @{$item->{writer}} if $item->{writer};
    $found{kind} = $kinds{$item->{kind}} if $item->{kind};
    $found{$_} = $item->{$_} for grep { defined $item->{$_} } qw(parts bytes);
    return \%found;
}

sub reader_of {
    my ($vector, $bytes, $read_size) = @_;
    my %options = (read_size => $read_size, strict => $vector->{strict});
    $options{mixed_data_mode} = $vector->{mode} eq 'mixed';
    $options{max_message} = $vector->{max_message};
    if (my $zstd = $vector->{zstd}) {
        $options{compression} = 'zstd';
        $options{accept_unchecked} = $zstd->{accept_unchecked};
        $options{compression_dictionary_file} = "$folder/$zstd->{dictionary}"
            if $zstd->{dictionary};
    }
    my ($r, $w) = Pipework::Atomic->pair(%options);
    syswrite($w->wh, $bytes) == length $bytes or die if length $bytes;
    return $r;
}

my $index = decode_json(slurp("$folder/index.json"))->{vectors};
cmp_ok(scalar @$index, '>', 100, 'vectors');
for my $vector (@$index) {
    my $bytes = slurp("$folder/$vector->{name}.bin");
    my @items = map { expected($_) } @{$vector->{items}};
    my $ends = $vector->{ends} eq 'closed' ? 'Closed' : 'Corrupt';
    my $wrong = 0;
    for my $read_size (65_536, 4096, 17, 1) {
        my $r = reader_of($vector, $bytes, $read_size);
        my @found;
        1 while eval { push @found, $r->next_item(10) };
        my $kind = ref $@ ? $@->kind : $@;
        next if @found == @items && $kind eq $ends && is_same(\@found, \@items);
        $wrong++ or is_deeply([map { $_->{type} } @found], [map { $_->{type} } @items], $kind);
    }
    is($wrong, 0, $vector->{name});
}

sub is_same {
    my ($found, $items) = @_;
    for my $i (0 .. $#$items) {
        my ($got, $wanted) = ($found->[$i], $items->[$i]);
        return 0 if join(' ', sort keys %$got) ne join(' ', sort keys %$wanted);
        return 0 if grep { $got->{$_} ne $wanted->{$_} } keys %$wanted;
    }
    return 1;
}

# In the way of the original: the same items without the reports.
for my $vector (grep { $_->{ends} eq 'closed' } @$index) {
    my $r = reader_of($vector, slurp("$folder/$vector->{name}.bin"), 65_536);
    $r->{on_torn} = sub { };
    my $is_mixed = $vector->{mode} eq 'mixed';
    my (@found, $end);
    for (1 .. 1000) {
        my @item = eval { $is_mixed ? $r->get_line_burst_or_data : $r->read_message };
        next if $@ && $@ =~ /^(?:zstd decompression failed|A message of writer)/;
        $end = $@ and last if $@;
        last if !@item;
        push @found, $item[-1];
    }
    my @wanted = map { bytes_of($_->{data}) } grep { $_->{type} ne 'torn' } @{$vector->{items}};
    my $is_torn = grep { ($_->{kind} // '') eq 'torn' } @{$vector->{items}};
    is_deeply(\@found, \@wanted, "$vector->{name} in the way of the original");
    my $words = qr/^Pipe is in an invalid state 'Incomplete message received before EOF'/;
    $is_mixed && $is_torn ? like($end, $words, 'and its end') : is($end, undef, 'and its end');
}

done_testing;
