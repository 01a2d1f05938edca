// The package for `import`. The classes are those that `require` gives.

import pipework from './index.js';

export const {
  Closed, Corrupt, Failed, Incompatible, Interrupted, Invalid, Lagged, NoServer, OsError, PeerDied, PipeworkError,
  RemoteError, Stale, TimedOut, TooLong, TornMessage, Unsupported, WouldBlock, atomic, guardStdout, reqrep,
} = pipework;
