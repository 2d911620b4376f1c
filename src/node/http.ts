/**
 * The only access to node:http, limited to the exports in use. An `import` would evaluate every export, and for some of
 * them Node 24 loads fetch and WebSocket: 4 MB of memory per process.
 */
export const { createServer, IncomingMessage, METHODS, Server, ServerResponse, STATUS_CODES } =
  process.getBuiltinModule('node:http');
