/**
 * The one door to node:http, which takes what there is use for. An import takes every export at once, and for some of them
 * Node 24 loads fetch and WebSockets: 4 MB of memory in every process.
 */
export const { createServer, IncomingMessage, METHODS, Server, ServerResponse, STATUS_CODES } =
  process.getBuiltinModule('node:http');
