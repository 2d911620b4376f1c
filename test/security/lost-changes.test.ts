import t from 'tap';
import { StoreState } from '../../src/adapters/redis/store-state.js';
import { seededRecords } from '../adapters/key-store-contract.js';

// A replica that was behind becomes the master: what was written last is gone, a revocation perhaps. A gateway that takes the
// older number for the newest one, a moment later, lets the revoked key in again.

const meta = JSON.stringify(seededRecords['mg:meta']);
const { generation } = JSON.parse(meta) as { generation: string };

t.test('a store that has lost changes decides nothing, however often it is asked, until it has them again', (t) => {
  const state = new StoreState();
  state.accept(meta, '7');
  t.equal(state.generation, generation);
  for (const revision of ['6', '6', '5', '6']) {
    state.accept(meta, revision);
    t.match(state.reason, `revision 7 was seen, and it has ${revision}`);
    t.equal(state.generation, null);
  }
  state.accept(null, null);
  state.accept(meta, '6');
  t.equal(state.generation, null, 'nor after it was empty for a while');
  state.accept(meta, '7');
  t.same([state.reason, state.generation], [null, generation]);
  t.end();
});

t.test('a store in doubt decides nothing until it has been asked', (t) => {
  const state = new StoreState();
  state.accept(meta, '7');
  state.doubt();
  t.equal(state.generation, null);
  state.accept(meta, '7');
  t.equal(state.generation, generation);
  t.end();
});
