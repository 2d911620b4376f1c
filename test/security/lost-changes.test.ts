import t from 'tap';
import { StoreState } from '../../src/adapters/redis/store-state.js';
import { seededRecords } from '../adapters/key-store-contract.js';

// A replica that was behind becomes the master: what was written last is gone, a revocation perhaps. A gateway that takes the
// older number for the newest one, a moment later, lets the revoked key in again.

const meta = JSON.stringify(seededRecords['mg:meta']);

/** What is believed of a store, after it was asked; what is believed is remembered. */
function ask(state: StoreState, meta: string | null, revision: string | null): boolean {
  const believed = state.judge(meta, revision, null, null);
  if (believed !== null) state.adopt(believed);
  return believed !== null;
}

t.test('a store that has lost changes decides nothing, however often it is asked, until it has them again', (t) => {
  const state = new StoreState();
  t.ok(ask(state, meta, '7'));
  for (const revision of ['6', '6', '5', '6']) {
    t.notOk(ask(state, meta, revision));
    t.match(state.reason, `revision 7 was seen, and it has ${revision}`);
  }
  t.notOk(ask(state, null, null));
  t.notOk(ask(state, meta, '6'), 'nor after it was empty for a while');
  t.ok(ask(state, meta, '7'));
  t.equal(state.reason, null);
  t.end();
});

const named = JSON.stringify({ ...(seededRecords['mg:meta'] as object), servers: ['a', 'b'], replicas: 1 });

// An emptied store is believed record by record while it is filled: on another server, or in an earlier history, what is there may be old.
t.test('a store that is filled counts only on servers that the registry names, and in no earlier history', (t) => {
  const filling = JSON.stringify({ ...(JSON.parse(named) as object), version: 2, filling: true, generation: 'r_2' });
  const judge = (servers: (string | null)[] | null, enrolledIn: string | null = null): boolean => {
    const state = new StoreState(() => undefined);
    t.equal(state.judge(filling, '7', servers, enrolledIn), null, 'it is not complete');
    return state.filling !== null;
  };
  t.ok(judge(['a']));
  t.ok(judge(['b', 'a'], 'r_1'));
  for (const servers of [['c'], ['a', 'c'], [null], null]) t.notOk(judge(servers), String(servers));
  t.notOk(judge(['a'], 'r_3'), 'an earlier history');
  const state = new StoreState();
  state.judge(filling, '7', ['a'], null);
  state.judge(named, '7', ['a'], null);
  t.equal(state.filling, null, 'it is complete');
  t.end();
});

// Redis was restarted on an old snapshot, and a gateway that started after that had nothing to compare it with: it let keys in that
// had been revoked, until the registry had written the changes again.
t.test('a server is believed that the registry names, or that a gateway remembers to lack nothing', (t) => {
  const state = new StoreState();
  t.match(state.judge(named, '7', ['a'], null), { replicas: 1 });
  t.match(state.judge(named, '7', ['b', 'a'], null), { replicas: 1 });
  for (const [servers, reason] of [
    [['c'], 'has not compared this Redis server with its database yet: c'],
    [['a', 'c'], 'yet: c'],
    [[null], /lacks the right \+info/],
  ] as const) {
    t.equal(state.judge(named, '7', servers, null), null);
    t.match(state.reason, reason);
    t.equal(state.judge(named, '7', servers, 'of another history'), null);
  }
  const { generation } = state.judge(named, '7', ['a'], null) ?? { generation: '' };
  ask(state, named, '7');
  t.match(state.judge(named, '7', ['c'], generation), { revision: 7 }, 'of a gateway that is enrolled in its history');
  t.match(state.notNamed, 'yet: c', 'which is worth a word');
  state.adopt(state.judge(named, '7', ['a'], null) ?? { generation: '', revision: 0, replicas: null });
  t.equal(state.judge(named, '6', ['a'], generation), null, 'but none that lacks something');
  t.equal(state.judge(named, '6', ['a'], null), null, 'also where the registry names it');
  const another = named.replace(generation, 'another');
  t.equal(state.judge(another, '1', ['c'], generation), null, 'nor one with another history');
  t.match(state.judge(another, '1', ['a'], generation), { generation: 'another', revision: 1 });
  t.end();
});

// A snapshot from before an upgrade of the registry: its meta record names no servers, so the rules of the former release held again,
// by which any server is believed, also one that lacks a revocation.
t.test('a store that named servers, and names none any more, decides nothing until it names them again', (t) => {
  for (const generation of [(seededRecords['mg:meta'] as { generation: string }).generation, 'another']) {
    const state = new StoreState();
    const former = JSON.stringify({ ...(seededRecords['mg:meta'] as object), generation });
    t.ok(ask(state, former, '7'), 'of a registry of the former release');
    t.ok(state.isFormer);
    t.ok(ask(state, named, '8'), 'that was upgraded');
    t.notOk(state.isFormer);
    for (const revision of ['8', '7', '9']) {
      t.notOk(ask(state, former, revision), `revision ${revision} of generation ${generation}`);
      t.match(state.reason, 'names no servers, though that of this store did');
      t.equal(state.judge(former, revision, ['a'], generation), null, 'also of a gateway that is enrolled in it');
    }
    t.notOk(state.isFormer, 'nor do the former rules hold');
    t.match(state.judge(named, '9', ['a'], null), { revision: 9, replicas: 1 });
    t.equal(state.reason, null);
  }
  t.end();
});
