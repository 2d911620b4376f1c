// Clients that keep their connections, and send nothing a second time that could have been carried out.
import https from 'node:https';

/** HTTP/1.1 with keep-alive; resolves to null, or to what went wrong. */
export function http1Client({ port, ca }, connections) {
  const agent = new https.Agent({ keepAlive: true, maxSockets: connections, ca, servername: 'localhost' });
  const ask = ({ method, path, headers, body }) =>
    new Promise((resolve) => {
      const request = https.request({ port, host: '127.0.0.1', path, method, agent, headers }, (response) => {
        response.resume();
        response.on('end', () => resolve(response.statusCode === 200 ? null : `status ${response.statusCode}`));
        response.on('error', (error) => resolve(`during the answer: ${error.code}`));
      });
      request.on('error', (error) =>
        resolve(`${error.code ?? error.message}${request.reusedSocket ? ' on a kept connection' : ''}`),
      );
      request.end(body);
    });
  return { ask, close: () => agent.destroy() };
}
