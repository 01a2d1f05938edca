'use strict';

// The package: two modules, the errors of both, and what keeps prints out of a protocol.

const errors = require('./errors.js');
const atomic = require('./atomic.js');
const reqrep = require('./reqrep.js');
const { guardStdout } = require('./guard.js');

module.exports = { ...errors, atomic, guardStdout, reqrep };
