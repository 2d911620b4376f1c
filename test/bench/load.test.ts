import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import { judge } from './compare/targets.js';
import { quantileOf, ratiosOf, spreadOf } from './compare/statistics.js';
import { ResponseReader } from './load/response-reader.js';
import { openClosedLoop } from './load/closed-loop.js';

const head = 'HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n';

/** What a reader returns for each piece of a response that arrives in pieces of this size. */
function readInPieces(reader: ResponseReader, response: string, size: number): (number | null)[] {
  const bytes = Buffer.from(response, 'latin1');
  const pieces = Array.from({ length: Math.ceil(bytes.length / size) }, (_, index) => index * size);
  return pieces.map((from) => reader.take(bytes.subarray(from, from + size)));
}

t.test('an answer is over with its last byte, however it comes, or requests would be counted that are none', (t) => {
  const responses = [
    `${head}content-length: 5\r\n\r\nhello`,
    `${head}Content-Length: 0\r\n\r\n`,
    `${head}transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n`,
    `HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\n\r\n{}`,
  ];
  for (const size of [1, 2, 7, 1000]) {
    const reader = new ResponseReader();
    for (const response of [...responses, ...responses]) {
      const statuses = readInPieces(reader, response, size);
      t.equal(statuses.pop(), response.startsWith('HTTP/1.1 401') ? 401 : 200, `pieces of ${size}: ${response}`);
      t.ok(
        statuses.every((status) => status === null),
        'and not before',
      );
    }
  }
  t.end();
});

t.test('a wrong answer is no figure', async (t) => {
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.on('data', () => socket.write('HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n'));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const load = await openClosedLoop({ port: (server.address() as AddressInfo).port, ca: null }, 1);
  await t.rejects(load.run({ next: () => 'GET / HTTP/1.1\r\n\r\n', status: 200, seconds: 1 }), {
    message: 'answered 503 in place of 200',
  });
  load.close();
  server.close();
});

t.test('ratios are made of the same round, and targets are judged by their median', (t) => {
  t.same(ratiosOf([1, 4, 9], [2, 4, 3]), { median: 1, min: 0.5, max: 3 });
  t.same(spreadOf([4, 1, 3, 2]), { median: 2.5, min: 1, max: 4 });
  t.equal(quantileOf([1, 2, 3, 4], 0.5), 3);
  const rounds = (cpuTimes: readonly number[]) =>
    cpuTimes.map((cpu) => ({ cpu, requests: 1, perSecond: 1, residentMegabytes: 100, latency: null }));
  const judged = (cpuTimes: readonly number[]) =>
    judge('get', [
      { subject: 'gateway', rounds: rounds(cpuTimes), failure: null },
      { subject: 'stock-log', rounds: rounds(cpuTimes.map(() => 10)), failure: null },
    ]).find(({ against }) => against === 'stock-log');
  t.match(judged([6, 7, 20]), { holds: true, measured: { median: 0.7 } });
  t.match(judged([6, 7.1, 20]), { holds: false });
  t.match(judged([]), { holds: false }, 'who dropped out has reached nothing');
  t.end();
});
