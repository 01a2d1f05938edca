# Objects that are destroyed when the program ends, in any order, and those that are half made.
use strict;
use warnings;
use Test::More;
use Pipework::Atomic;

alarm 120;

my @perl = ($^X, '-w', map { "-I$_" } @INC);

# Runs a program with the pipe's writing end as its standard output. Returns its standard
# error, its status, and the messages.
sub run {
    my ($program, %options) = @_;
    my ($r, $w) = Pipework::Atomic->pair;
    my $pid = open(my $errors, '-|') // die;
    if (!$pid) {
        open STDERR, '>&', \*STDOUT or die;
        open STDOUT, '>&', $w->wh or die;
        exec @perl, '-MPipework::Atomic', '-e', "my \$class = 'Pipework::Atomic'; $program" or die;
    }
    $w->close;
    my @messages;
    while (defined(my $message = $r->read_message)) { push @messages, $message }
    my $text = do { local $/; readline $errors };
    close $errors;
    return {text => $text // '', status => $?, messages => \@messages};
}

my %programs = (
    'a lexical' => 'my $w = $class->from_fh(\*STDOUT); WORK',
    'a global' => 'our $w = $class->from_fh(\*STDOUT); WORK',
    'a cycle' => 'my $w = $class->from_fh(\*STDOUT); $w->{itself} = $w; WORK',
    'in a closure of itself' =>
        'my $w = $class->from_fh(\*STDOUT); my $code; $code = sub { return ($w, $code) }; WORK',
    'in a hash of a class' => 'our %kept; $kept{w} = my $w = $class->from_fh(\*STDOUT); WORK',
    'exit in a sub' => 'my $w = $class->from_fh(\*STDOUT); sub { WORK exit 0 }->()',
    'END' => 'my $w = $class->from_fh(\*STDOUT); END { WORK }',
    'its handle kept elsewhere' =>
        'my $w = $class->from_fh(\*STDOUT); our $handle = $w->wh; our $object = $w; WORK',
);
for my $name (sort keys %programs) {
    my $program = $programs{$name}
        =~ s/WORK/\$w->blocking(0); \$w->write_message("x" x 200_000) for 1 .. 2;/r;
    my $ran = run($program);
    is($ran->{text}, '', "$name: nothing is printed");
    is($ran->{status}, 0, 'its status');
    is_deeply([map { length } @{$ran->{messages}}], [200_000, 200_000], 'what was pending is written');
}

my %others = (
    'by hand, twice' =>
        '$class->new->DESTROY; my $p = $class->new; $p->DESTROY for 1, 2; undef $p;',
    'a handle that was taken out' => 'my $p = $class->new; $p->blocking(0);'
        . '$p->write_message("x" x 200_000); $p->{wh} = undef; undef $p;',
    'half made' => 'eval { $class->pair(compression => "no") }; $@ =~ /^Unknown/ or die;',
    'not made' => 'my $half = bless {}, $class; undef $half; $class->DESTROY;',
    'many' => 'my @all = map { $class->new } 1 .. 25; our @more = map { [$class->pair] } 1 .. 25;'
        . '$all[0]{all} = \@all;',
);
for my $name (sort keys %others) {
    my $ran = run($others{$name});
    is("$ran->{text}$ran->{status}", '0', $name);
}

subtest 'a subclass with a destructor of its own' => sub {
    @Own::ISA = 'Pipework::Atomic';
    no warnings 'once';
    *Own::DESTROY = sub { };
    my ($r, $w) = Own->pair;
    $w->blocking(0);
    my $pid = fork // die;
    if (!$pid) {
        $w->close;
        exec 'true' if length $r->read_message == 100_000;
        exec 'false';
    }
    $w->write_message('x' x 100_000);
    undef $w;
    waitpid $pid, 0;
    is($?, 0, 'what was pending is written');
    my $number;
    ($r, $w) = Own->pair;
    $w->blocking(0);
    $w->write_message('x' x 100_000);
    $number = fileno $w->wh;
    close $w->wh;
    pipe(my $other, my $same) or die;
    is(fileno $same, $number, 'another file has its number') or diag fileno $other;
    undef $w;
    close $same;
    is(scalar readline $other, undef, 'nothing was written there');
};

done_testing;
