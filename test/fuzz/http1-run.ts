import { setImmediate, setTimeout as delay } from 'node:timers/promises';
import { connect } from '../edge/harness.js';
import type { GatewayUnderTest } from '../edge/harness.js';
import { envelope, hangMilliseconds, parseResponses, quietMilliseconds } from './responses.js';

/** Writes texts to a new connection; resolves with all received bytes once the gateway has closed the connection. */
async function play(gateway: GatewayUnderTest, parts: readonly string[]): Promise<string> {
  const socket = connect(gateway.https, gateway.ca);
  let received = '';
  // Half-closes the connection once no more bytes arrive. The gateway must then close it, or the connection hangs.
  const quiet = setTimeout(() => socket.end(), quietMilliseconds);
  socket.setEncoding('latin1').on('data', (chunk: string) => {
    received += chunk;
    quiet.refresh();
  });
  socket.on('error', () => (received = '')); // a reset discards unread bytes
  const closed = new Promise<void>((resolve) => {
    socket.once('close', () => {
      resolve();
    });
  });
  for (const part of parts) {
    socket.write(part, 'latin1');
    await setImmediate();
  }
  const outcome = await Promise.race([closed, delay(hangMilliseconds, 'hangs', { ref: false })]);
  clearTimeout(quiet);
  socket.destroy();
  if (outcome === 'hangs') throw new Error('the connection hangs');
  return received;
}

/** The rules that an HTTP/1 case breaks; empty if none. */
export async function http1Problems(gateway: GatewayUnderTest, parts: readonly string[]): Promise<string[]> {
  const problems: string[] = [];
  const responses = parseResponses(await play(gateway, parts));
  for (const { status, headers, body } of responses) {
    const isOwn = headers.get('x-service') === undefined;
    if (isOwn && body !== '' && !envelope.test(body)) problems.push(`answered ${status} ${body}`);
    if (!headers.has('x-request-id')) problems.push(`answered ${status} without a request id`);
  }
  const ids = new Set(responses.map(({ headers }) => headers.get('x-request-id') ?? ''));
  const logged = (): string[] => gateway.lines.map((line) => (line.http as { request: { id: string } }).request.id);
  const deadline = performance.now() + hangMilliseconds;
  while ([...ids].some((id) => !logged().includes(id)) && performance.now() < deadline) await delay(1);
  for (const id of ids) {
    const count = logged().filter((one) => one === id).length;
    if (count !== 1) problems.push(`${count} lines in the log for the answer ${id}`);
  }
  return problems;
}
