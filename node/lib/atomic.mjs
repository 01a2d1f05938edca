// Module `atomic` for `import`. The classes are those that `require` gives.

import atomic from './atomic.js';

export const { Burst, Line, Message, Reader, Torn, Writer, createFifo, maxCapacity, pair } = atomic;
