# Stands in the place of IO::FD::Constants, in a folder that Pipework::InsteadOf describes.
use strict;
use warnings;
use Pipework::InsteadOf ();

Pipework::InsteadOf->stand_in('IO::FD::Constants');
1;
