use strict;
use warnings;
use Test::More;

use_ok('Pipework');
is(Pipework::core_version(), $Pipework::VERSION, 'one version, one library');
is(Pipework::error(), '', 'nothing has failed yet');
ok(eval { Pipework::accept_versions('Pipework::Some', '0.027'); $Pipework::Some::VERSION = '0.1.0'; Pipework::Some->VERSION('0.026') }, 'a version of the original');
ok(!eval { Pipework::Some->VERSION('7'); 1 }, 'one that is too new');
done_testing;
