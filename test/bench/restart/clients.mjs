// Clients that keep their connections, and send nothing a second time that could have been carried out.
import http2 from 'node:http2';
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
  return { ask, repeated: () => 0, close: () => agent.destroy() };
}

/**
 * HTTP/2 with several requests at once on each connection. One that GOAWAY or REFUSED_STREAM says was not taken is sent
 * again elsewhere, as every client library does (RFC 9113 8.7); nothing else is.
 */
export function http2Client({ port, ca }, connections, streamsEach) {
  const sessions = Array.from({ length: Math.ceil(connections / streamsEach) }, () => null);
  let repeated = 0;
  const sessionAt = (place) => {
    const session = sessions[place];
    if (session !== null && !session.closed && !session.destroyed) return session;
    const opened = http2.connect(`https://localhost:${port}`, { ca, servername: 'localhost', host: '127.0.0.1' });
    opened.on('error', () => undefined); // its requests tell
    sessions[place] = opened;
    return opened;
  };
  const askOnce = (place, { method, path, headers, body }) =>
    new Promise((resolve) => {
      const stream = sessionAt(place).request(
        { ':method': method, ':path': path, ...headers },
        { endStream: body === '' },
      );
      let status = 0;
      let failure = null;
      stream.on('response', (answer) => (status = answer[':status']));
      stream.on('error', (error) => (failure = error.code ?? error.message));
      stream.on('close', () => {
        if (stream.rstCode === http2.constants.NGHTTP2_REFUSED_STREAM) resolve('refused');
        else if (failure !== null || stream.rstCode !== 0) resolve(failure ?? `reset ${stream.rstCode}`);
        else resolve(status === 200 ? null : `status ${status}`);
      });
      stream.resume();
      if (body !== '') stream.end(body);
    });
  const ask = async (what, worker) => {
    const place = Math.floor(worker / streamsEach);
    for (;;) {
      const failure = await askOnce(place, what);
      if (failure !== 'refused') return failure;
      repeated += 1;
    }
  };
  return { ask, repeated: () => repeated, close: () => sessions.forEach((session) => session?.destroy()) };
}
