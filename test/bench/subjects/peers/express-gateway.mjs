// Express Gateway as generated: Redis emulated in memory, one pipeline with the key check and the proxy policy.
import { cpSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { ready, settings } from '../key-check.mjs';

const require = createRequire(import.meta.url);
const directory = path.join(settings.directory, 'config');
const packaged = path.dirname(require.resolve('express-gateway/package.json'));
cpSync(path.join(packaged, 'lib/config/models'), path.join(directory, 'models'), { recursive: true });

const gatewayConfig = {
  http: { port: 0, hostname: '127.0.0.1' },
  https: { port: 0, hostname: '127.0.0.1', tls: { default: { key: settings.keyFile, cert: settings.certFile } } },
  apiEndpoints: { api: { host: '*', paths: '/v1/*' } },
  serviceEndpoints: { service: { url: `http://127.0.0.1:${settings.upstreamPort}` } },
  policies: ['key-check', 'proxy'],
  pipelines: {
    main: {
      apiEndpoints: ['api'],
      policies: [
        { 'key-check': [{ action: {} }] },
        { proxy: [{ action: { serviceEndpoint: 'service', stripPath: true } }] },
      ],
    },
  },
};
const systemConfig = {
  db: { redis: { emulate: true, namespace: 'EG' } },
  plugins: { 'key-check': { package: fileURLToPath(new URL('express-gateway-plugin.cjs', import.meta.url)) } },
  crypto: { cipherKey: 'none', algorithm: 'aes256', saltRounds: 10 },
  session: { secret: 'none', resave: false, saveUninitialized: false },
  accessTokens: { timeToExpiry: 7200000 },
  refreshTokens: { timeToExpiry: 7200000 },
  authorizationCodes: { timeToExpiry: 300000 },
};
writeFileSync(path.join(directory, 'gateway.config.json'), JSON.stringify(gatewayConfig));
writeFileSync(path.join(directory, 'system.config.json'), JSON.stringify(systemConfig));

process.env.LOG_LEVEL = 'error';
// Otherwise it would send all requests through the proxy named in the environment.
delete process.env.http_proxy;
delete process.env.HTTP_PROXY;
const [{ app, httpsApp }] = await require('express-gateway')().load(directory).run();
ready(app.address().port, httpsApp.address().port);
