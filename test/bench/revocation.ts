import { setTimeout as wait } from 'node:timers/promises';
import { numberIn, optionsOf, say } from './command-line.js';
import { Teardowns } from '../deployment/teardowns.js';
import { startBenchDeployment } from './deployment.js';
import { distributionOf, distributionText } from './distribution.js';
import { Beside, Load } from './load.js';

// Measures how long the registry takes to respond to a revocation. Checks that gateways accept no request that starts
// after the response. Three gateway processes run under load with the revoked key. Options add requests of the same
// merchant and changes of another one, at fixed rates.

const options = optionsOf({
  ...{ revocations: '200', gateways: '3', connections: '8', seconds: '300' },
  ...{ 'requests-per-second': '', 'changes-per-second': '', pause: '' },
});
const revocations = numberIn('revocations', options.revocations);
const gatewayCount = numberIn('gateways', options.gateways);
const connections = numberIn('connections', options.connections);
/** Pause between two requests of a connection. */
const pauseMilliseconds = numberOrZero('pause');
const requestRate = numberOrZero('requests-per-second');
const changeRate = numberOrZero('changes-per-second');
const deadline = performance.now() + numberIn('seconds', options.seconds) * 1000;

interface Revoked {
  readonly propagation: { readonly gateways: number; readonly confirmed: number };
}

const t = new Teardowns();
try {
  const deployment = await startBenchDeployment(t);
  const gateways = await Promise.all(Array.from({ length: gatewayCount }, () => deployment.startGateway()));
  while (Number((await deployment.admin('GET', '/gateways')).data.length) < gatewayCount) await wait(20);
  const merchant = { name: 'Benchmark', status: 'ACTIVE', goLive: true };
  const { id } = (await deployment.admin('POST', '/merchants', merchant)).data;

  const beside = await Beside.begin({ deployment, gateways, merchantId: String(id), requestRate, changeRate });
  const times: number[] = [];
  let [confirmed, honoured, before, after] = [0, 0, 0, 0];
  while (times.length < revocations && performance.now() < deadline) {
    const made = await deployment.admin('POST', `/merchants/${String(id)}/keys`, { environment: 'live' });
    const load = new Load(gateways, connections, String(made.data.key), pauseMilliseconds);
    await load.untilAccepted();
    const begun = performance.now();
    const { data } = await deployment.admin('POST', `/keys/${String(made.data.keyId)}/revoke`);
    const returned = performance.now();
    times.push(returned - begun);
    const counts = await load.end(returned);
    before += counts.before;
    after += counts.after;
    honoured += counts.honoured;
    const { propagation } = data as unknown as Revoked;
    if (propagation.confirmed === gatewayCount && propagation.gateways === gatewayCount) confirmed += 1;
    if (times.length % 25 === 0) say(`${times.length} of ${revocations} revocations`);
  }
  const besideCounts = await beside.end();
  const result = {
    ...{ revocations: times.length, gateways: gatewayCount, connectionsEach: connections },
    milliseconds: distributionOf(times),
    confirmedByAll: confirmed,
    acceptedBefore: before,
    startedAfterReturn: after,
    startedAfterReturnAndAccepted: honoured,
    ...besideCounts,
  };
  if (options.json) process.stdout.write(`${JSON.stringify(result)}\n`);
  else {
    process.stdout.write(
      `${result.revocations} revocations, ${gatewayCount} gateways, ${connections} connections to each\n` +
        `milliseconds until the revocation returned: ${distributionText(result.milliseconds)}\n` +
        `confirmed by all gateways: ${confirmed}\n` +
        `accepted before: ${before}\n` +
        `started after the return: ${after}, of these accepted: ${honoured}\n` +
        `beside that: ${besideCounts.besideRequests} requests and ${besideCounts.besideChanges} changes\n`,
    );
  }
  if (honoured > 0 || times.length < revocations) process.exitCode = 1;
} finally {
  await t.close();
}

function numberOrZero(name: 'requests-per-second' | 'changes-per-second' | 'pause'): number {
  return options[name] === '' ? 0 : numberIn(name, options[name]);
}
