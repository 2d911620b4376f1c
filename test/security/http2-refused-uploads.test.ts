// A client whose upload is refused hears of it a round trip later. What it sent until then is no flood, though nobody
// reads it: counted as one, two refused uploads would cut off a merchant's connection with all that is asked on it.

import { Readable } from 'node:stream';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { startTestGateway } from '../http/harness.js';
import { frame, FrameConnection, headersFrames, requestFields } from '../http/http2-frames.js';
import { SilentFrames } from '../../src/http/http2/silent-frames.js';

const window = 65_535;

/** A connection whose bytes a test tells, and how often it was found to be a flood. */
function connection(): {
  socket: { bytesRead: number; bytesWritten: number };
  frames: SilentFrames;
  floods: () => number;
} {
  const socket = { bytesRead: 0, bytesWritten: 0 };
  let floods = 0;
  const frames = new SilentFrames(socket, () => {
    floods += 1;
  });
  return { socket, frames, floods: () => floods };
}

/** Asks for an upload, and refuses it before a byte of it has come. */
async function refuseUpload(frames: SilentFrames): Promise<void> {
  const stream = Object.assign(new Readable({ read: () => undefined }), { endAfterHeaders: false });
  frames.asked(stream as never, []);
  stream.destroy();
  await new Promise((resolve) => setImmediate(resolve));
}

for (const later of [1, 2, 10]) {
  t.test(`the rest of refused uploads may come up to ${later} looks later`, async (t) => {
    const { socket, frames, floods } = connection();
    for (let upload = 0; upload < 8; upload += 1) {
      await refuseUpload(frames);
      for (let look = 1; look < later; look += 1) frames.look();
      socket.bytesRead += window;
      frames.look();
    }
    t.equal(floods(), 0);
  });
}

t.test('it may come in pieces, and of several at once', async (t) => {
  const { socket, frames, floods } = connection();
  for (let upload = 0; upload < 4; upload += 1) await refuseUpload(frames);
  for (let look = 0; look < 8; look += 1) {
    socket.bytesRead += window / 2;
    frames.look();
  }
  t.equal(floods(), 0);
});

t.test('it is counted once, and what comes more than a second later is none of it', async (t) => {
  const twice = connection();
  await refuseUpload(twice.frames);
  twice.socket.bytesRead += window;
  twice.frames.look();
  t.equal(twice.floods(), 0);
  twice.socket.bytesRead += 1.5 * window;
  twice.frames.look();
  t.equal(twice.floods(), 1);

  const late = connection();
  for (let upload = 0; upload < 4; upload += 1) await refuseUpload(late.frames);
  for (let look = 0; look < 10; look += 1) late.frames.look();
  late.socket.bytesRead += 2 * window;
  late.frames.look();
  t.equal(late.floods(), 1);
});

t.test('an upload that was taken whole leaves nothing', async (t) => {
  const { socket, frames, floods } = connection();
  const stream = Object.assign(new Readable({ read: () => undefined }), { endAfterHeaders: false });
  frames.asked(stream as never, []);
  stream.push(Buffer.alloc(10));
  stream.push(null);
  stream.resume();
  await new Promise((resolve) => stream.once('close', resolve));
  socket.bytesRead += 2 * window;
  frames.look();
  t.equal(floods(), 1);
});

/** Longer than it takes until a connection is looked at. */
const lookedAtMilliseconds = 250;

for (const [when, firstBytes] of [
  ['none', 0],
  ['some', 16_000],
] as const) {
  t.test(`over a connection, where ${when} of each upload came before it was refused`, async (t) => {
    const gateway = await startTestGateway(t);
    const connection = new FrameConnection(gateway.https, gateway.ca);
    for (let upload = 0; upload < 8; upload += 1) {
      const stream = 1 + 2 * upload;
      const data = (bytes: number): Buffer => frame('data', 0, stream, Buffer.alloc(bytes));
      connection.send(headersFrames(stream, 0, requestFields('POST', '/v1/payouts')));
      if (firstBytes > 0) connection.send(data(firstBytes));
      await connection.until(() => connection.of('rstStream', stream).length > 0);
      for (let sent = firstBytes; sent < 64_000; sent += 16_000) connection.send(data(16_000));
    }
    await wait(lookedAtMilliseconds);
    connection.ask(17, 'GET', '/v1/transactions');
    await connection.until(() => connection.isOver(17));
    t.equal(connection.goaway(), null);
    connection.socket.destroy();
  });
}

t.test('an upload that its client has ended leaves nothing, though nobody reads it', async (t) => {
  const { socket, frames, floods } = connection();
  const stream = Object.assign(new Readable({ read: () => undefined }), { endAfterHeaders: false });
  frames.asked(stream as never, []);
  stream.push(null);
  stream.destroy();
  await new Promise((resolve) => setImmediate(resolve));
  socket.bytesRead += 2 * window;
  frames.look();
  t.equal(floods(), 1);
});
