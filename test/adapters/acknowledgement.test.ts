import t from 'tap';
import { AcknowledgementState } from '../../src/adapters/redis/gateway/standing.js';

/** An error reply of Redis. */
function reply(message: string): Error {
  return Object.assign(new Error(message), { name: 'ReplyError' });
}

t.test('only the latest reply of a server that refuses writes shows that it may have been replaced', (t) => {
  let now = 0;
  const acknowledgement = new AcknowledgementState({ now: () => now }, 1_000);
  const rejectsWrites =
    'Redis rejects the acknowledgements of this gateway (READONLY or NOREPLICAS), so another server may be the master';
  t.equal(acknowledgement.reason, null, 'before the first acknowledgement');
  acknowledgement.put({ wall: 0, monotonic: performance.now() });
  acknowledgement.failed(reply("READONLY You can't write against a read only replica."));
  t.equal(acknowledgement.reason, null, 'while the last acknowledgement is valid');
  now = 1_001;
  t.equal(acknowledgement.reason, rejectsWrites);
  acknowledgement.failed(new Error('Command timed out'));
  t.equal(acknowledgement.reason, rejectsWrites, 'a timeout proves nothing');
  acknowledgement.failed(reply("OOM command not allowed when used memory > 'maxmemory'."));
  t.equal(acknowledgement.reason, null, 'another server that is full, or this one as master again');
  acknowledgement.failed(reply('NOREPLICAS Not enough good replicas to write.'));
  t.equal(acknowledgement.reason, rejectsWrites);
  acknowledgement.put({ wall: now, monotonic: performance.now() });
  t.equal(acknowledgement.reason, null);
  t.end();
});
