'use strict';

// Handles stay on their thread. Without this, `postMessage` would turn them into empty objects.

const { inspect } = require('node:util');

/**
 * A value for a property of a handle. Cloning the handle, as `postMessage` and `structuredClone`
 * do, reads it, and so throws: an error that says what to do instead.
 */
function pinned(name, instead) {
  const value = {};
  Object.defineProperty(value, 'thread', {
    enumerable: true,
    get() {
      const text = `a ${name} cannot be sent to another thread: ${instead}`;
      throw Object.assign(new TypeError(text), { code: 'ERR_PIPEWORK_PINNED' });
    },
  });
  // Those who write objects out, and clone nothing, leave it out.
  Object.defineProperty(value, 'toJSON', { value: () => undefined });
  Object.defineProperty(value, inspect.custom, { value: () => 'this one' });
  return Object.freeze(value);
}

module.exports = { pinned };
