// Module `reqrep` for `import`. The classes are those that `require` gives.

import reqrep from './reqrep.js';

export const { Blob, BlobMut, Client, Request, Segment, Server } = reqrep;
