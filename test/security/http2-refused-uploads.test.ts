// A client whose upload is refused hears of it a round trip later. What it sent until then is no flood, though nobody
// reads it: counted as one, two refused uploads would cut off a merchant's connection with all that is asked on it.

import { Readable } from 'node:stream';
import t from 'tap';
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
