// Express with http-proxy-middleware and keep-alive connections to the upstream.
import http from 'node:http';
import express from 'express';
import { createProxyMiddleware } from 'http-proxy-middleware';
import { admit, listen, settings } from '../key-check.mjs';

const app = express();
app.use((request, response, next) => {
  if (admit(request, response)) next();
});
app.use(
  '/v1',
  createProxyMiddleware({
    target: `http://127.0.0.1:${settings.upstreamPort}`,
    agent: new http.Agent({ keepAlive: true, maxSockets: 128 }),
  }),
);
listen(app);
