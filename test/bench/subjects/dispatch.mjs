// The least that a proxy on Node's HTTP stack can cost: a node:http server, undici's dispatch and a key check, nothing
// more.
import { Pool } from 'undici';
import { admit, listen, settings, upstreamPath } from './key-check.mjs';

const pool = new Pool(`http://127.0.0.1:${settings.upstreamPort}`, { connections: 128, pipelining: 1 });

class Answer {
  #response;
  #chunks = [];

  constructor(response) {
    this.#response = response;
  }

  onConnect() {}

  onHeaders(status, rawHeaders) {
    const headers = [];
    for (const part of rawHeaders) headers.push(part.latin1Slice());
    this.#response.writeHead(status, headers);
    return true;
  }

  onData(chunk) {
    this.#chunks.push(chunk);
    return true;
  }

  onComplete() {
    this.#response.end(this.#chunks.length === 1 ? this.#chunks[0] : Buffer.concat(this.#chunks));
  }

  onError() {
    if (this.#response.headersSent) this.#response.destroy();
    else this.#response.writeHead(502).end();
  }
}

listen((request, response) => {
  if (!admit(request, response)) return;
  const { method, headers, url } = request;
  delete headers.connection;
  const body = method === 'GET' ? null : request;
  pool.dispatch({ method, path: upstreamPath(url), headers, body }, new Answer(response));
});
