import { appendFileSync, utimesSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'libsql';
import t from 'tap';
import { makeCertificate } from '../edge/certificates.js';
import { until } from './rig.js';
import { metricValue, openScenes, options, times } from './scenes.js';

t.test('alerts on files fire for their causes, and never in a quiet hour', options, async (t) => {
  const scenes = await openScenes(t, 'files');
  const { ask, caused, folder, gateways, key, registry, start, write } = scenes;
  const [gateway] = gateways;
  const day = 86_400_000;

  await caused(
    ['GatewayAccessLogShared'],
    { 'gateway 1': gateway },
    async () => {
      appendFileSync(gateway.files.accessLog, 'a line of somebody else\n');
      await ask(gateway, { key });
    },
    async () => (await metricValue(gateway, 'gateway_access_log_foreign_bytes_total')) > 0,
  );

  await caused(
    ['GatewayCertificateRefused'],
    { 'gateway 1': gateway },
    () => {
      writeFileSync(gateway.files.certFile, 'no certificate');
      gateway.child.kill('SIGHUP');
    },
    async () => (await metricValue(gateway, 'gateway_tls_files_usable')) === 0,
  );

  // Some alerts fire only for files that are days old, or for certificates that expire soon. For these alerts, the test
  // starts separate processes with such files.
  const ending = await makeCertificate({ notBefore: Date.now() - 88 * day, notAfter: Date.now() + 2 * day });
  const old = path.join(folder, 'old.txt');
  writeFileSync(old, '198.51.100.66\n');
  utimesSync(old, new Date(Date.now() - 2 * day), new Date(Date.now() - 2 * day));
  const late = await start('gateway', {
    accessLog: { reserveBytes: 2 ** 50 },
    listen: { https: { certFile: write('ending.crt', ending.cert), keyFile: write('ending.key', ending.key) } },
    torExits: { sources: [old], snapshotFile: path.join(folder, 'old.json') },
  });
  await caused(
    ['GatewayCertificateEnds', 'GatewayTorListOld', 'GatewayAccessLogReserve'],
    { 'gateway 1': late },
    () => undefined,
    async () =>
      (await metricValue(late, 'gateway_tor_list_age_seconds')) > 0 &&
      (await metricValue(late, 'gateway_access_log_reserve_reached')) === 1,
  );
  await late.kill();

  const lateRegistry = await start('registry', {
    registry: {
      listen: { certFile: path.join(folder, 'ending.crt'), keyFile: path.join(folder, 'ending.key') },
      database: { url: 'sqlite::memory:' },
    },
    keyStore: { redis: { prefix: 'late:' } },
  });
  await caused(
    ['RegistryCertificateEnds', 'RegistryCertificateRefused'],
    { registry: lateRegistry },
    () => {
      writeFileSync(path.join(folder, 'ending.crt'), 'no certificate');
      lateRegistry.child.kill('SIGHUP');
    },
    async () => (await metricValue(lateRegistry, 'registry_tls_files_usable')) === 0,
  );
  await lateRegistry.kill();

  const unsigned = await start('gateway', {
    accessLog: { checkpoints: { keyFile: path.join(folder, 'instance.pem'), file: folder } },
  });
  await caused(
    ['GatewayAccessLogCheckpointsFailing'],
    { 'gateway 1': unsigned },
    () => undefined,
    async () => (await metricValue(unsigned, 'gateway_access_log_checkpoints_failing')) === 1,
  );
  await unsigned.kill();

  const alone = await start('gateway', {
    accessLog: {
      checkpoints: {
        ...{ keyFile: path.join(folder, 'instance.pem'), file: path.join(folder, 'checkpoints.jsonl') },
        witness: { registerSeconds: 0 },
      },
    },
  });
  await caused(
    ['GatewayAccessLogReceiptsFailing'],
    { 'gateway 1': alone },
    () => undefined,
    async () => (await metricValue(alone, 'gateway_access_log_receipts_failing')) === 1,
  );
  await alone.kill();

  await caused(
    ['RegistryAccessLogInDoubt'],
    { registry },
    () => {
      const database = new Database(path.join(folder, 'registry.db'), { timeout: 5_000 });
      database.exec("insert into checkpoint_findings values ('1', 0, 'cut', 'gateway/run', 'its log was cut')");
      database.close();
    },
    async () => (await metricValue(registry, 'registry_checkpoint_findings_total{kind="cut"}')) > 0,
  );

  await caused(
    ['RegistryUnusualUse', 'RegistryWebhooksUndelivered'],
    { registry },
    () => {
      const database = new Database(path.join(folder, 'registry.db'), { timeout: 5_000 });
      for (let number = 0; number < 25; number += 1)
        database.exec(
          `insert into unusual_findings values ('${number}', 'key', 'm', 'surge', 'surge', ${Date.now()}, 0, '', null, null, null, null, null, null)`,
        );
      database.exec("insert into webhooks values ('1', 'target', '{}', 0, 9, 0, 1, 'timeout')");
      database.close();
    },
    async () =>
      (await metricValue(registry, 'registry_unusual_findings_total{rule="surge"}')) === 25 &&
      (await metricValue(registry, 'registry_webhooks_undelivered')) === 1,
  );

  const mostKibibytes = 64;
  const full = write('full.log', 'x'.repeat(mostKibibytes * 1024));
  const without = await start(
    'gateway',
    {
      accessLog: { destination: full, onFailure: 'continue' },
      torExits: { sources: [path.join(folder, 'none.txt')], snapshotFile: path.join(folder, 'none.json') },
    },
    mostKibibytes,
  );
  await caused(
    ['GatewayTorListUnavailable', 'GatewayAccessLogFailing'],
    { 'gateway 1': without },
    () => ask(without, { key }),
    async () => (await metricValue(without, 'gateway_access_log_failing')) === 1,
  );
  const long = `/transactions?${'x'.repeat(3900)}`;
  await caused(['GatewayAccessLogLinesLost'], { 'gateway 1': without }, () =>
    until(
      '16 MiB are pending',
      async () => {
        // The agent keeps 256 idle connections. Each request beyond that number would need a TLS handshake.
        await times(200, () => ask(without, { key, path: long }));
        return (await metricValue(without, 'gateway_access_log_lines_lost_total')) > 0;
      },
      120,
    ),
  );
  scenes.evaluate();
});
