import { setImmediate, setTimeout as delay } from 'node:timers/promises';
import type { GatewayUnderTest } from '../http/harness.js';
import { FrameConnection } from '../http/http2-frames.js';
import { envelope, hangMilliseconds, quietMilliseconds, serviceBody } from './answers.js';

/** Sends frames on a connection of their own, and resolves with it when the gateway has ended it. */
async function play(gateway: GatewayUnderTest, parts: readonly Buffer[]): Promise<FrameConnection> {
  const connection = new FrameConnection(gateway.https, gateway.ca);
  const quiet = setTimeout(() => connection.socket.end(), quietMilliseconds);
  connection.socket.on('data', () => quiet.refresh());
  for (const part of parts) {
    connection.send(part);
    await setImmediate();
  }
  // The gateway closes some seconds after a GOAWAY, which would be most of the time of a run.
  const ended = connection.until(() => connection.goaway() !== null).catch(() => undefined);
  const outcome = await Promise.race([ended, delay(hangMilliseconds, 'hangs', { ref: false })]);
  clearTimeout(quiet);
  connection.socket.destroy();
  if (outcome === 'hangs') throw new Error('the connection hangs');
  return connection;
}

/** What a case of HTTP/2 breaks; empty if nothing. The head of an answer is compressed: what is compared is its body. */
export async function http2Problems(gateway: GatewayUnderTest, parts: readonly Buffer[]): Promise<string[]> {
  const linesBefore = gateway.lines.length;
  const connection = await play(gateway, parts);
  const answered = new Set(connection.of('headers').map(({ stream }) => stream));
  const deadline = performance.now() + hangMilliseconds;
  const lines = (): number => gateway.lines.length - linesBefore;
  while (lines() < answered.size && performance.now() < deadline) await setImmediate();
  return [...answered]
    .map((stream) => connection.body(stream))
    .filter((body) => body !== '' && body !== serviceBody && !envelope.test(body))
    .map((body) => `answered ${body}`)
    .concat(lines() < answered.size ? [`${lines()} lines in the log for ${answered.size} answers`] : []);
}
