# Stands in the place of Data::ReqRep::Shared::Int::Client, in a folder that Pipework::InsteadOf describes.
use strict;
use warnings;
use Pipework::InsteadOf ();

Pipework::InsteadOf->stand_in('Data::ReqRep::Shared::Int::Client');
1;
