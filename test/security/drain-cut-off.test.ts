import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import t from 'tap';
import { createSelfSigned } from '../../src/cli/dev/self-signed.js';
import { connect, liveKey, recordsOf, requestBytes } from '../edge/harness.js';
import { productCommand } from '../product-command.js';

// Cutting the TCP socket from below a TLS socket that had something to write crashed the process: whoever read slowly
// during a deployment took the last lines of the log with it.
t.test('a drain that has to cut off slow readers ends as a drain', async (t) => {
  const upstream = http.createServer((_request, response) => response.end(Buffer.alloc(30_000_000))).listen(0);
  await once(upstream, 'listening');
  t.teardown(() => {
    upstream.closeAllConnections();
    upstream.close();
  });
  const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-drain-'));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  const file = (name: string) => path.join(directory, name);
  const { cert, key } = await createSelfSigned(new Date());
  await writeFile(file('cert.txt'), cert);
  await writeFile(file('key.txt'), key);
  await writeFile(file('records.json'), JSON.stringify(recordsOf(liveKey)));
  await writeFile(
    file('config.yaml'),
    `listen:
  https: { host: 127.0.0.1, port: 0, certFile: ${file('cert.txt')}, keyFile: ${file('key.txt')} }
  http: null
  management: null
torExits: { enabled: false }
keyStore: { kind: memory, memory: { recordsFile: ${file('records.json')} } }
accessLog: { destination: ${file('access.log')} }
upstreams: { transactions: { url: "http://127.0.0.1:${(upstream.address() as AddressInfo).port}" } }
routes: [{ path: /transactions, upstream: transactions, resource: transactions }]
limits: { drainTimeoutSeconds: 1 }
`,
  );
  const child = spawn(...productCommand(['gateway', '--config', file('config.yaml')]));
  t.teardown(() => child.kill('SIGKILL'));
  let log = '';
  const port = await new Promise<number>((resolve) => {
    child.stderr.on('data', (chunk: Buffer) => {
      log += chunk.toString();
      const found = /"port":(\d+)/.exec(log);
      if (found !== null) resolve(Number(found[1]));
    });
  });
  const slow = Array.from({ length: 4 }, () => connect(port, cert));
  for (const socket of slow) {
    socket.on('error', () => undefined);
    socket.write(requestBytes({ headers: [['x-api-key', liveKey]] }).replace('Connection: close\r\n', ''));
    await once(socket, 'data');
    socket.pause();
  }
  // Connections that never say anything, and one that stops in the middle of its handshake.
  const silent = [net.connect(port, '127.0.0.1'), net.connect(port, '127.0.0.1')];
  for (const socket of silent) {
    socket.on('error', () => undefined);
    await once(socket, 'connect');
  }
  silent[1]?.write(Buffer.from([0x16, 0x03, 0x01, 0x02]));
  child.kill('SIGTERM');
  const [status, signal] = (await once(child, 'exit')) as [number | null, string | null];
  t.same({ status, signal }, { status: 0, signal: null });
  t.match(log, '"msg":"drained"');
  for (const socket of [...slow, ...silent]) socket.destroy();
});
