import type { IncomingMessage, RequestListener } from 'node:http';
import { ServerResponse } from '../node/http.js';
import { newestExchange } from './pipeline.js';
import { lingeringClose } from './lingering-close.js';

/**
 * Has a CONNECT request served as any other one, which never makes a tunnel of it. Node hands it over with its bare
 * socket and without a response, and does so at once: also while a request before it is still owed its answer, whose
 * response has that socket. Taking it away then would be an exception that ends the process.
 */
export function serveConnect(request: IncomingMessage, handler: RequestListener): void {
  const previous = newestExchange(request.socket);
  if (previous === null) serve(request, handler);
  else
    previous.whenOver(() => {
      serve(request, handler);
    });
}

function serve(request: IncomingMessage, handler: RequestListener): void {
  const { socket } = request;
  if (!socket.writable) return; // the answer before was the last one of its connection
  const response = new ServerResponse(request);
  response.shouldKeepAlive = false;
  response.assignSocket(socket);
  // Node tells the end of the responses that it made itself; of this one it does not know.
  const end = (): void => {
    response.emit('close');
    lingeringClose(socket); // Node no longer handles this socket, so it has to be read and closed here
  };
  response.once('finish', end);
  socket.once('close', end);
  handler(request, response);
}
