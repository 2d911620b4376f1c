// fast-proxy on node:http, with the transport that its documentation calls the fastest.
import fastProxy from 'fast-proxy';
import { admit, listen, settings, upstreamPath } from '../key-check.mjs';

const { proxy } = fastProxy({
  base: `http://127.0.0.1:${settings.upstreamPort}`,
  undici: { connections: 128, pipelining: 1 },
});

listen((request, response) => {
  if (admit(request, response)) proxy(request, response, upstreamPath(request.url), {});
});
