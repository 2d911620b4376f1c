import { runInNewContext } from 'node:vm';
import { setFlagsFromString } from 'node:v8';
import fc from 'fast-check';
import t from 'tap';
import { MemberList } from '../../src/edge/connections/connections.js';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as (options?: { readonly type: 'minor' }) => void;

t.test('the members are those added and not yet removed', (t) => {
  const keepsThem = fc.property(fc.array(fc.nat({ max: 20 }), { maxLength: 200 }), (turns) => {
    const roster = new MemberList<number>();
    const here = new Map<number, () => void>();
    for (const member of turns) {
      const leave = here.get(member);
      if (leave === undefined) here.set(member, roster.add(member));
      else {
        leave();
        leave(); // a second removal removes no other member
        here.delete(member);
      }
      const members = roster.members().toSorted((a, b) => a - b);
      if (members.join() !== [...here.keys()].toSorted((a, b) => a - b).join()) return false;
      if (roster.size !== here.size) return false;
    }
    return true;
  });
  t.doesNotThrow(() => {
    fc.assert(keepsThem);
  });
  t.end();
});

t.test('members may leave during iteration', (t) => {
  const roster = new MemberList<string>();
  const leaves = ['a', 'b', 'c'].map((member) => roster.add(member));
  const seen: string[] = [];
  for (const member of roster.members()) {
    seen.push(member);
    for (const leave of leaves) leave();
  }
  t.same(seen, ['a', 'b', 'c']);
  t.equal(roster.size, 0);
  t.end();
});

/** Returns how many removed members are still in memory after collections of the young generation. */
function leftBehind(add: (member: object) => () => void): number {
  const size = 10_000;
  const turns = 400;
  collect();
  const present: (() => void)[] = [];
  for (let turn = 0; turn < turns; turn += 1) {
    present.push(add(new Array(size).fill(turn)));
    if (present.length > 8) present.shift()?.();
    if (turn % 16 === 0) collect({ type: 'minor' });
  }
  for (const leave of present) leave();
  for (let times = 0; times < 3; times += 1) collect({ type: 'minor' });
  const before = process.memoryUsage().heapUsed;
  collect();
  return (before - process.memoryUsage().heapUsed) / (8 * size);
}

t.test('a removed member is freed by a minor collection; with a Set it waits for a full one', (t) => {
  const set = new Set<object>();
  const ofSet = leftBehind((member) => {
    set.add(member);
    return () => set.delete(member);
  });
  const roster = new MemberList<object>();
  const ofRoster = leftBehind((member) => roster.add(member));
  t.comment(`retained of 400 by a Set: ${ofSet.toFixed()}`); // not asserted: a later V8 may improve
  t.ok(ofRoster < 100, `retained by a roster: ${ofRoster.toFixed()}`);
  t.end();
});
