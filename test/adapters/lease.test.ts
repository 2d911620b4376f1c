import t from 'tap';
import type { Test } from 'tap';
import { Lease } from '../../src/adapters/redis/gateway/lease.js';

/** A lease of 30 s on clocks that the test sets. */
function setUp(t: Test, maxStaleMilliseconds = 30_000) {
  const time = { wall: 1_700_000_000_000, monotonic: 5_000 };
  t.intercept(performance, 'now', { value: () => time.monotonic });
  const lease = new Lease({ now: () => time.wall }, maxStaleMilliseconds);
  const pass = (milliseconds: number): void => {
    time.wall += milliseconds;
    time.monotonic += milliseconds;
  };
  const grant = (beat: number, part: object = {}) => {
    lease.granted({ generation: 'g', beat, lifetimeMilliseconds: 31_000, ...part }, 'g');
  };
  return { lease, time, pass, grant };
}

t.test('a grant enrols for a recent heartbeat of this gateway, and for no other', (t) => {
  const { lease, pass, grant } = setUp(t);
  t.equal(lease.lifetimeMilliseconds, 31_000);
  lease.begin();
  t.notOk(lease.enrolled);
  grant(2);
  t.notOk(lease.enrolled, 'a heartbeat that it has not sent');
  grant(1, { generation: 'former' });
  t.notOk(lease.enrolled, 'of another generation');
  pass(30_001);
  grant(1);
  t.notOk(lease.enrolled, 'the registry may have removed the gateway since');
  lease.begin();
  pass(30_000);
  grant(2);
  t.ok(lease.enrolled);
  t.equal(lease.sinceSure, 30_000, 'it proves the state at the start of that heartbeat');
  lease.begin();
  pass(100);
  grant(2);
  t.ok(lease.enrolled, 'an enrolled gateway stays enrolled while its grant exists');
  t.ok(lease.isOver, 'but not longer than the registry waits');
  lease.granted(null, 'g');
  t.notOk(lease.enrolled);
  t.end();
});

t.test('an older grant never lowers the certainty, and a shorter lifetime applies', (t) => {
  const { lease, pass, grant } = setUp(t);
  lease.begin();
  pass(500);
  const { at } = lease.begin();
  grant(1);
  t.equal(lease.sinceSure, 500);
  lease.sure(at);
  t.equal(lease.sinceSure, 0);
  grant(1);
  t.equal(lease.sinceSure, 0);
  t.equal(lease.sinceEchoed, 500);
  grant(2, { lifetimeMilliseconds: 3_000 });
  t.equal(lease.milliseconds, 2_000);
  pass(2_000);
  t.notOk(lease.isOver);
  pass(1);
  t.ok(lease.isOver);
  lease.end();
  grant(2, { lifetimeMilliseconds: 3_000 });
  t.notOk(lease.enrolled, 'the age of a grant counts too');
  t.end();
});

t.test('the clock that has advanced further counts; a clock set back ends the lease', (t) => {
  const { lease, time, grant } = setUp(t);
  lease.begin();
  grant(1);
  time.wall += 30_001;
  t.ok(lease.isOver, 'a machine that was suspended');
  time.wall -= 30_001;
  t.notOk(lease.isOver);
  time.wall -= 1;
  t.ok(lease.isOver);
  t.end();
});

t.test('a new generation requires a new enrolment', (t) => {
  const { lease, pass } = setUp(t);
  lease.begin();
  lease.granted({ generation: 'g', beat: 1, lifetimeMilliseconds: 31_000 }, 'g');
  t.equal(lease.generation, 'g');
  pass(30_001);
  lease.begin();
  lease.granted({ generation: 'h', beat: 1, lifetimeMilliseconds: 31_000 }, 'h');
  t.equal(lease.generation, null);
  lease.granted({ generation: 'h', beat: 2, lifetimeMilliseconds: 31_000 }, 'h');
  t.equal(lease.generation, 'h');
  t.end();
});

t.test(
  'fresh records are waited for even where stale ones are never served, and a lifetime is at most one day',
  (t) => {
    t.equal(setUp(t, 0).lease.lifetimeMilliseconds, 2_500);
    t.equal(setUp(t, 86_400_000).lease.lifetimeMilliseconds, 86_400_000);
    const { lease, pass, grant } = setUp(t);
    // Of many rapid heartbeats, the lease stores only some start times. For a heartbeat without a stored time, it uses
    // the nearest earlier one.
    for (let beat = 1; beat <= 50; beat += 1) {
      lease.begin();
      pass(10);
    }
    grant(50);
    t.equal(lease.sinceSure, 100);
    t.end();
  },
);
