export * from './reqrep.js';
