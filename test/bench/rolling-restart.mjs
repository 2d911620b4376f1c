// Rolling restarts under load: three gateways on one Redis behind HAProxy as a TCP balancer, restarted repeatedly one
// after the other while clients send requests over TLS. Some clients keep connections and pause between requests;
// others connect and send their first request up to one second later. Run manually with `npm run bench:restart`; needs
// haproxy, redis-server and openssl. Every response must be 200, and each POST must arrive exactly once. Ends after
// REQUESTS requests and ROLLING_RESTARTS restarts of all three.
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { http1Client } from './restart/clients.mjs';
import { key, startDeployment, startGateway } from './restart/deployment.mjs';
import { endProcesses } from './restart/processes.mjs';

const total = Number(process.env.REQUESTS ?? 120_000);
const rollingRestarts = Number(process.env.ROLLING_RESTARTS ?? 20);
const connections = Number(process.env.CONNECTIONS ?? 64);
const longestMilliseconds = 20 * 60_000;
/** Shorter than the drain delay: after a longer pause the connection closes without a prior `Connection: close`. */
const longestRestMilliseconds = 3_000;

const deployment = await startDeployment();
const { gateways, service } = deployment;

/** Sends all requests while the gateways restart; returns the number of failures. */
async function restartUnder(name, client) {
  const failures = new Map();
  const posted = [];
  let [done, restarts] = [0, 0];
  const isOver = () => done >= total && restarts >= rollingRestarts;
  const fail = (what) => failures.set(what, (failures.get(what) ?? 0) + 1);
  const worker = async (_, index) => {
    for (let number = index; !isOver(); number += connections) {
      const isPost = number % 2 === 0;
      const body = isPost ? `{"amount":${number},"over":"${name}"}` : '';
      if (isPost) posted.push(body);
      const typed = isPost ? { 'content-type': 'application/json', 'content-length': body.length } : {};
      const headers = { 'x-api-key': key, ...typed };
      const target = isPost ? { method: 'POST', path: '/v1/payouts' } : { method: 'GET', path: '/v1/transactions' };
      // Most pauses are short, one in twenty is long.
      await sleep(Math.random() * (Math.random() < 0.05 ? longestRestMilliseconds : 200));
      const failure = await client.ask({ ...target, headers, body }, index);
      done += 1;
      if (failure !== null) fail(failure);
    }
  };
  const restart = async () => {
    for (; !isOver(); restarts += 1) {
      for (const gateway of gateways) {
        const exited = once(gateway.child, 'exit');
        gateway.child.kill('SIGTERM');
        const [status] = await exited;
        if (status !== 0) fail(`a gateway ended with ${status}`);
        await startGateway(gateway);
        await sleep(500);
      }
    }
  };
  const timer = setTimeout(() => {
    console.error(`${name}: not over after ${longestMilliseconds / 60_000} minutes: ${done} of ${total}`);
    void endProcesses('SIGKILL').then(() => process.exit(1));
  }, longestMilliseconds);
  const begin = performance.now();
  let seconds = 0;
  const load = Promise.all(Array.from({ length: connections }, worker)).then(() => {
    seconds = (performance.now() - begin) / 1000;
  });
  await Promise.all([load, restart()]);
  clearTimeout(timer);
  client.close();

  const failed = [...failures.values()].reduce((sum, count) => sum + count, 0);
  const lost = posted.filter((body) => !service.arrived.has(body)).length;
  const doubled = posted.filter((body) => (service.arrived.get(body) ?? 0) > 1).length;
  console.log(
    `${name}: ${done} requests in ${seconds.toFixed(1)} s (${Math.round(done / seconds)} a second), ${connections} clients, ${restarts} restarts of all gateways
  ${failed} failed; of ${posted.length} POSTs ${lost} did not arrive and ${doubled} arrived more than once`,
  );
  for (const [failure, count] of failures) console.log(`  ${count} × ${failure}`);
  return failed + lost + doubled;
}

let wrong = 1;
try {
  wrong = await restartUnder('HTTP/1.1', http1Client(deployment, connections));
} finally {
  service.close();
  await endProcesses();
}
process.exit(wrong === 0 ? 0 : 1);
