// Clients that never retry a request that may have been carried out.
import { once } from 'node:events';
import https from 'node:https';
import { setTimeout as sleep } from 'node:timers/promises';
import tls from 'node:tls';

/** An HTTP/1.1 client; `ask` resolves with null, or with the failure. */
export function http1Client({ port, ca }, connections) {
  const to = { port, host: '127.0.0.1', ca, servername: 'localhost' };
  // Each client has its own connection, which idles no longer than the client pauses.
  const agents = Array.from({ length: connections }, () => new https.Agent({ keepAlive: true, maxSockets: 1 }));
  const send = ({ method, path, headers, body }, how) =>
    new Promise((resolve) => {
      const request = https.request({ ...to, path, method, headers, ...how }, (response) => {
        response.resume();
        response.on('end', () => resolve(response.statusCode === 200 ? null : `status ${response.statusCode}`));
        response.on('error', (error) => resolve(`during the answer: ${error.code}`));
      });
      request.on('error', (error) =>
        resolve(`${error.code ?? error.message}${request.reusedSocket ? ' on a kept connection' : ''}`),
      );
      request.end(body);
    });
  /** Connects and sends the first request after a delay. */
  const sendLate = async (what) => {
    const socket = tls.connect(to);
    try {
      await once(socket, 'secureConnect');
      await sleep(Math.random() * 900);
      return await send(what, { agent: false, createConnection: () => socket });
    } catch (error) {
      return `${error.code ?? error.message} on a new connection`;
    } finally {
      socket.destroy();
    }
  };
  const ask = (what, index) => (Math.random() < 0.1 ? sendLate(what) : send(what, { agent: agents[index] }));
  return { ask, close: () => agents.forEach((agent) => agent.destroy()) };
}
