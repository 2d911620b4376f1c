// http-proxy on node:http, with keep-alive connections to the upstream.
import http from 'node:http';
import httpProxy from 'http-proxy';
import { admit, listen, settings, upstreamPath } from '../key-check.mjs';

const proxy = httpProxy.createProxyServer({
  target: `http://127.0.0.1:${settings.upstreamPort}`,
  agent: new http.Agent({ keepAlive: true, maxSockets: 128 }),
});
proxy.on('error', (_error, _request, response) => response.destroy());

listen((request, response) => {
  if (!admit(request, response)) return;
  request.url = upstreamPath(request.url);
  proxy.web(request, response);
});
