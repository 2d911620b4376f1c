import t from 'tap';
import { Acknowledgement } from '../../src/adapters/redis/gateway/standing.js';

/** What Redis answers. */
function reply(message: string): Error {
  return Object.assign(new Error(message), { name: 'ReplyError' });
}

t.test('only the newest answer of a server that refuses writes says that it may have been replaced', (t) => {
  let now = 0;
  const acknowledgement = new Acknowledgement({ now: () => now }, 1_000);
  const takesNone = 'the store takes no acknowledgements';
  t.equal(acknowledgement.reason, null, 'before the first');
  acknowledgement.put({ wall: 0, monotonic: performance.now() });
  acknowledgement.failed(reply("READONLY You can't write against a read only replica."));
  t.equal(acknowledgement.reason, null, 'while the last one lasts');
  now = 1_001;
  t.equal(acknowledgement.reason, takesNone);
  acknowledgement.failed(new Error('Command timed out'));
  t.equal(acknowledgement.reason, takesNone, 'no answer says nothing');
  acknowledgement.failed(reply("OOM command not allowed when used memory > 'maxmemory'."));
  t.equal(acknowledgement.reason, null, 'another server, which is full, or this one, which is the master again');
  acknowledgement.failed(reply('NOREPLICAS Not enough good replicas to write.'));
  t.equal(acknowledgement.reason, takesNone);
  acknowledgement.put({ wall: now, monotonic: performance.now() });
  t.equal(acknowledgement.reason, null);
  t.end();
});
