import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import net from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import path from 'node:path';
import t from 'tap';
import { openLoadedTorExits } from '../../src/cli/compose/gateway-ports.js';
import { loadConfig } from '../../src/config/load.js';
import { createLogger } from '../../src/telemetry/logger.js';
import { startRedis, withoutRedis } from '../adapters/redis-server.js';

t.test(
  'a Redis outage is logged once for the Tor exit list, however many retries fail',
  { skip: withoutRedis },
  async (t) => {
    const server = await startRedis(t);
    const directory = t.testdir({ list: '198.51.100.9\n' });
    const file = path.join(directory, 'gateway.yaml');
    const torExits = {
      sources: [path.join(directory, 'list')],
      allowReserved: true,
      snapshotFile: path.join(directory, 's'),
    };
    writeFileSync(file, JSON.stringify({ environment: 'live', torExits, keyStore: { redis: { url: server.url } } }));
    const warnings: unknown[] = [];
    const log = createLogger('silent');
    log.warn = (...line: unknown[]) => void warnings.push(line.at(-1));
    log.error = log.warn;
    const exits = await openLoadedTorExits(loadConfig({ file }), log, 'followed');
    t.teardown(() => exits.close());
    t.same(warnings, []);
    await server.kill();
    let attempts = 0;
    const refusing = net.createServer((socket) => {
      attempts += 1;
      socket.destroy();
    });
    await once(refusing.listen(server.port, '127.0.0.1'), 'listening');
    t.teardown(() => refusing.close());
    // The gateway reads the list from Redis every ten seconds. While Redis is away, it tries to connect more often.
    const patience = Date.now() + 60_000;
    while (warnings.length === 0 && Date.now() < patience) await wait(100);
    const enough = attempts + 5;
    while (attempts < enough && Date.now() < patience) await wait(20);
    t.ok(attempts >= enough, 'the connection was tried again and again');
    t.same(warnings, ['the Tor exit list cannot be read from the key store']);
  },
);
