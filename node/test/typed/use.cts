// The same for `require`. It is compiled, and not run.

import pipework = require('pipework');
import reqrep = require('pipework/reqrep');

export const client: pipework.reqrep.Client = new reqrep.Client('/dev/shm/x');
export const isLate = (error: unknown): boolean => error instanceof pipework.TimedOut && error.op === 'x';
