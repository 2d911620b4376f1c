import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createSelfSigned } from '../../src/cli/dev/self-signed.js';
import type { Teardown } from '../edge/harness.js';

/** Configuration of a gateway process, in addition to an HTTPS listener and the route of transactions. */
export interface GatewayConfig {
  readonly redisUrl: string;
  readonly upstreamUrl: string;
  readonly maxStaleSeconds: number;
  /** The management listener and additional sections, as YAML. */
  readonly management: string;
  readonly more?: string;
}

/** Writes a configuration and its certificate into a folder that is removed after the test. */
export async function writeGatewayConfig(t: Teardown, config: GatewayConfig) {
  const { cert, key } = await createSelfSigned(new Date());
  const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-integration-'));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  const file = (name: string) => path.join(directory, name);
  await writeFile(file('cert.txt'), cert);
  await writeFile(file('key.txt'), key);
  await writeFile(
    file('config.yaml'),
    `listen:
  https: { host: 127.0.0.1, port: 0, certFile: ${file('cert.txt')}, keyFile: ${file('key.txt')} }
  http: null
  management: ${config.management}
torExits: { enabled: false }
accessLog: { destination: ${file('access.log')} }
keyStore: { kind: redis, redis: { url: "${config.redisUrl}" }, cache: { maxStaleSeconds: ${config.maxStaleSeconds} } }
upstreams: { transactions: { url: "${config.upstreamUrl}" } }
routes: [{ path: /transactions, upstream: transactions, resource: transactions }]
${config.more ?? ''}
`,
  );
  return { cert, configFile: file('config.yaml') };
}
