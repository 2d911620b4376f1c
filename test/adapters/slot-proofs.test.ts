import t from 'tap';
import type { ClusterMasters } from '../../src/adapters/redis/cluster/cluster-masters.js';
import { slotCount, slotMarkerText } from '../../src/adapters/redis/cluster/hash-slots.js';
import { SlotProofs } from '../../src/adapters/redis/cluster/slot-proofs.js';
import { RecordNames } from '../../src/adapters/redis/record-names.js';

t.test('verified slots stay verified when the check of other slots fails', async (t) => {
  const marker = slotMarkerText({ generation: 'r_1', revision: 1 });
  let asked = 0;
  let replyLimit = Infinity;
  const commands = {
    call: () => Promise.resolve([]),
    pipeline: () => {
      let questions = 0;
      return {
        call: () => (questions += 1),
        exec: () => {
          asked += questions;
          if (asked > replyLimit) return Promise.reject(new Error('Command timed out'));
          return Promise.resolve(Array.from({ length: questions }, () => [null, marker]));
        },
      };
    },
  };
  const master = { session: {}, commands };
  const proofs = new SlotProofs({ owner: () => master } as unknown as ClusterMasters, new RecordNames('mg:'));

  replyLimit = slotCount / 2;
  await t.rejects(proofs.check('meta', 'r_1'), { message: 'Command timed out' });
  t.ok(proofs.isWhole(0));
  t.notOk(proofs.isWhole(slotCount - 1));

  [asked, replyLimit] = [0, Infinity];
  await proofs.check('meta', 'r_1');
  t.ok(asked < slotCount * 0.75, `${asked} slots were queried again`);
  t.equal(proofs.missing, 0);
});

t.test('slots whose marker proves completeness are not rewritten', async (t) => {
  const marker = slotMarkerText({ generation: 'r_1', revision: 1 });
  const sent: string[] = [];
  const commands = {
    call: (verb: string) => Promise.resolve(verb === 'ZRANGE' ? [] : sent.push(verb)),
    pipeline: () => {
      const verbs: string[] = [];
      return {
        call: (verb: string) => verbs.push(verb),
        exec: () => {
          sent.push(...verbs);
          return Promise.resolve(verbs.map((verb) => [null, verb === 'GET' ? marker : 1]));
        },
      };
    },
  };
  const master = { session: {}, commands };
  const proofs = new SlotProofs({ owner: () => master } as unknown as ClusterMasters, new RecordNames('mg:'));
  const written = async (generation: string): Promise<number> => {
    sent.length = 0;
    await proofs.seal({ generation, revision: 2 });
    return sent.filter((verb) => verb === 'EVAL').length;
  };
  await proofs.check('meta', 'r_1');
  t.equal(await written('r_1'), 0);
  t.equal(await written('r_2'), slotCount + 1, 'another generation: the markers, then the index');
  t.equal(await written('r_2'), 0);
  master.session = {};
  t.equal(await written('r_2'), slotCount + 1, 'a master with a new session may have been emptied');
});
