// Searches the small worlds of the model. `npm run model` searches the large ones too.
import t from 'tap';
import { follow, search } from './search.js';
import { deepMutations, formerFaults, mutations, newIn, without } from './worlds.js';
import type { WorldName } from './worlds.js';

const smallWorlds: readonly WorldName[] = ['quiet', 'cut'];

for (const name of smallWorlds) {
  t.test(`the protocol keeps its invariants: ${name}`, (t) => {
    const { mechanisms, setup, options } = newIn(name);
    const result = search(mechanisms, setup, options);
    t.equal(result.broken, null, result.trace.join('\n'));
    t.equal(result.isPartial, false, 'every state was visited');
    t.end();
  });
}

t.test('the search finds the invariant violations of the previous release', (t) => {
  for (const { name, mechanisms, setup, options } of formerFaults) {
    // The searches of T2 and T4 take minutes: a restored database has many states.
    if (!/^T[135]/.test(name)) continue;
    t.match(search(mechanisms, setup, options).broken, /^I1: /, name);
  }
  t.end();
});

// Mechanisms whose removal violates an invariant within few states. The other mechanisms need large worlds.
const cheap = new Set([
  'budgetEnds',
  'closeLookups',
  'confirm',
  'enrol',
  'freshGrant',
  'hold',
  'keepFormerAcknowledgement',
  'neverBack',
  'neverOldForm',
  'recordGuard',
  'roster',
  'witness',
]);

t.test('without any one of its mechanisms the protocol violates an invariant', (t) => {
  for (const mutation of mutations) {
    if (!Object.keys(mutation[0]).some((name) => cheap.has(name))) continue;
    const { name, mechanisms, setup, options } = without(mutation);
    t.match(search(mechanisms, setup, options).broken, /^I[1-4]: /, name);
  }
  t.end();
});

t.test('without a rule of the lease, a sequence too deep for the search violates an invariant', (t) => {
  for (const mutation of deepMutations) {
    const { name, mechanisms, setup } = without(mutation);
    const world = newIn(mutation[1]);
    t.match(follow(mechanisms, setup, mutation[2]), /^I1: /, name);
    t.match(follow(world.mechanisms, setup, mutation[2]), /^not possible: /, `with the rule: ${name}`);
  }
  t.end();
});
