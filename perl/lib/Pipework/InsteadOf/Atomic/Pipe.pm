# Stands in the place of Atomic::Pipe, in a folder that Pipework::InsteadOf describes.
use strict;
use warnings;
use Pipework::InsteadOf ();

Pipework::InsteadOf->stand_in('Atomic::Pipe');
1;
