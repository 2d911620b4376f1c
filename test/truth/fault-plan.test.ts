import t from 'tap';
import { Random } from '../fuzz/random.js';
import { FaultPlan } from './fault-plan.js';

const faults = ['cut', 'delay', 'flush', 'kill'];

t.test('the plan continues until each fault had enough changes, and prefers faults with the fewest', (t) => {
  const plan = new FaultPlan(new Random(1), { faults, each: 100, sequence: null, given: [] });
  const rounds: (readonly string[])[] = [];
  while (!plan.isDone && rounds.length < 100) {
    const names = plan.next();
    rounds.push(names);
    plan.made(names, names.includes('flush') ? 10 : 60);
  }
  t.same(plan.lacking, []);
  const counts = faults.map((fault) => rounds.filter((names) => names.includes(fault)).length);
  t.equal(new Set(rounds.slice(0, 4).flat()).size, 4, 'each fault occurs before any occurs twice');
  t.ok((counts[2] ?? 0) >= 10, 'a fault with few changes per round gets more rounds');
  t.ok(rounds.length <= 16, `done in ${rounds.length} rounds`);
  t.end();
});

t.test('a run is reproduced from its seed and rounds, however many changes were made', (t) => {
  const first = new Random(7);
  const plan = new FaultPlan(first, { faults, each: 100, sequence: null, given: [] });
  const rounds = Array.from({ length: 8 }, (_, index) => {
    const names = plan.next();
    plan.made(names, index % 3 === 0 ? 0 : 40);
    return { names, drawn: first.below(1000) };
  });
  const second = new Random(7);
  const again = new FaultPlan(second, { faults, each: 100, sequence: null, given: rounds.map(({ names }) => names) });
  t.same(
    rounds.map(() => ({ names: again.next(), drawn: second.below(1000) })),
    rounds,
  );
  t.end();
});

t.test('without a target number all faults occur, and the plan never ends', (t) => {
  const plan = new FaultPlan(new Random(3), { faults, each: null, sequence: null, given: [] });
  const names = Array.from({ length: 60 }, () => plan.next()).flat();
  plan.made(faults, 1000);
  t.same(new Set(names), new Set(faults));
  t.same([plan.isDone, plan.lacking], [false, []]);
  t.end();
});
