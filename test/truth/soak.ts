import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { numberIn, say } from '../bench/command-line.js';
import { Teardowns } from '../deployment/teardowns.js';
import { faultKinds } from './faults.js';
import { beginOf } from './history.js';
import { run, type Round } from './run.js';
import { topologies, type Topology } from './stores.js';

const help = `npm run soak:truth -- [options]

Starts registries, gateways and Redis, changes keys and merchants and makes requests beside random faults, and looks for statements
that no state explains: a key that is accepted after its revocation was in force, a good key that is refused, a gateway that stays away.

  --topology T     ${topologies.join(' | ')} (single)
  --seconds N      how long (120)
  --changes N      end earlier, after so many changes (no limit)
  --each N         go on until the rounds of each fault had so many changes, and choose first those that had the fewest. --seconds
                   is the limit (1800)
  --faults a,b     these only. There are: ${Object.keys(faultKinds).join(', ')}
  --seed N         repeats the actions of the run that printed it; not their timing. How many changes are made depends on that,
                   so a run with --each is repeated by its rounds, too
  --rounds a+b,c   the faults of the first rounds
  --sequence N     each round is a sequence of N faults, some of which overlap (one fault, or two at a time)
  --keys N         keys of other merchants, imported before the first round (0)
  --gateways N     (3)
  --registries N   1 on SQLite, or 2 on the PostgreSQL of POSTGRES_URL (1)
  --stale N        maxStaleSeconds of gateways and registries (5)
  --callers N      callers of each gateway (2)
  --pause N        milliseconds between two requests of a caller (8)
  --hold N         seconds that a fault lasts, at most (4)
  --changers N     callers that make changes (4)
  --decide N       seconds within which every gateway must decide again (10)
  --in-force N     seconds within which a change must be in force again (35)
  --dist DIR       the built product (dist)
  --stop           ends at the first violation
  --json           the result as JSON on standard output

Exit status: 1 where something was found; what happened around it is written to a file.
`;

// The files written for the processes contain secrets, and a process rejects a secret file that other users can read.
process.umask(0o077);
const { values } = parseArgs({
  options: {
    ...Object.fromEntries(
      ['topology', 'seconds', 'changes', 'faults', 'seed', 'gateways', 'registries', 'stale', 'callers', 'pause'].map(
        (name) => [name, { type: 'string' as const }],
      ),
    ),
    ...Object.fromEntries(
      ['hold', 'changers', 'decide', 'in-force', 'dist', 'each', 'rounds', 'sequence', 'keys'].map((name) => [
        name,
        { type: 'string' as const },
      ]),
    ),
    stop: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
const given: Readonly<Record<string, unknown>> = values;
const text = (name: string): string | null => (typeof given[name] === 'string' ? given[name] : null);
const number = (name: string, otherwise: number): number => numberIn(name, text(name) ?? String(otherwise));

if (values.help) {
  process.stdout.write(help);
  process.exit(0);
}
const topology =
  topologies.find((one) => one === (text('topology') ?? 'single')) ?? wrong(`--topology ${text('topology') ?? ''}`);
const registries = number('registries', 1);
const seed = number('seed', 1 + (Date.now() % 2 ** 31));
const faults = faultsOf(text('faults'), topology, registries > 1);
const each = text('each') === null ? null : number('each', 1);
const t = new Teardowns();
const rounds: Round[] = [];
const found = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.once(signal, () => {
    found.abort();
  });
say(`seed ${seed}`);
try {
  await run(t, {
    ...{ topology, registries, seed, faults, signal: found.signal },
    gateways: number('gateways', 3),
    maxStaleSeconds: number('stale', 5),
    dist: path.resolve(text('dist') ?? 'dist'),
    seconds: number('seconds', each === null ? 120 : 1800),
    each,
    rounds: (text('rounds')?.split(',') ?? []).map((round) =>
      faultsOf(round.replaceAll('+', ','), topology, registries > 1),
    ),
    changes: number('changes', Number.MAX_SAFE_INTEGER),
    sequence: text('sequence') === null ? null : number('sequence', 1),
    keys: text('keys') === null ? 0 : number('keys', 0),
    callers: number('callers', 2),
    pauseMilliseconds: number('pause', 8),
    holdMilliseconds: number('hold', 4) * 1000,
    changers: number('changers', 4),
    limits: {
      decideMilliseconds: number('decide', 10) * 1000,
      inForceMilliseconds: number('in-force', 35) * 1000,
    },
    onRound: (round) => {
      rounds.push(round);
      sayRound(round);
      if (values.stop && round.violations.length > 0) found.abort();
    },
  });
} finally {
  await t.close();
}
const violations = rounds.flatMap((round) => round.violations);
const table = faults.map((fault) => {
  const these = rounds.filter((round) => round.faults.includes(fault));
  const sum = (what: (round: Round) => number): number => these.reduce((total, round) => total + what(round), 0);
  return {
    ...{ fault, topology, rounds: these.length, changes: sum(({ changes }) => changes) },
    requestsAfterInForce: sum(({ afterInForce }) => afterInForce),
    toBeRefused: sum(({ toBeRefused }) => toBeRefused),
    violations: sum((round) => round.violations.length),
  };
});
const lacking = table.filter(({ changes }) => each !== null && changes < each).map(({ fault }) => fault);
const result = {
  ...{ seed, topology, registries, rounds: rounds.length, lacking },
  faults: rounds.map((round) => round.faults.join('+')).join(','),
  changes: rounds.reduce((total, { changes }) => total + changes, 0),
  requests: rounds.reduce((total, { requests }) => total + requests, 0),
  requestsAfterInForce: rounds.reduce((total, { afterInForce }) => total + afterInForce, 0),
  toBeRefused: rounds.reduce((total, { toBeRefused }) => total + toBeRefused, 0),
  violations: violations.length,
  historyFile: violations.length === 0 ? null : await writeHistory(rounds),
};
if (values.json) process.stdout.write(`${JSON.stringify({ ...result, table })}\n`);
else {
  // A round with two faults counts for both.
  process.stdout.write(`${'fault'.padEnd(18)}topology  rounds  changes  after "in force"  to be refused  violations\n`);
  for (const row of table) {
    const cells = [String(row.rounds).padStart(6), String(row.changes).padStart(9)];
    cells.push(String(row.requestsAfterInForce).padStart(18), String(row.toBeRefused).padStart(15));
    cells.push(String(row.violations).padStart(12));
    process.stdout.write(`${row.fault.padEnd(18)}${row.topology.padEnd(10)}${cells.join('')}\n`);
  }
  if (lacking.length > 0) process.stdout.write(`fewer than ${each ?? 0} changes: ${lacking.join(', ')}\n`);
  process.stdout.write(
    `\n${result.rounds} rounds, ${result.changes} changes, ${result.requests} requests, of these ${result.requestsAfterInForce} after ` +
      `"in force" (${result.toBeRefused} to be refused); ${result.violations} violations; seed ${seed}, rounds ${result.faults}\n${result.historyFile ?? ''}\n`,
  );
}
if (violations.length > 0) process.exitCode = 1;

function faultsOf(names: string | null, topology: Topology, hasPostgres: boolean): string[] {
  const possible = Object.entries(faultKinds)
    .filter(([, kind]) => kind.topologies?.includes(topology) ?? true)
    .filter(([, kind]) => hasPostgres || kind.needsPostgres !== true)
    .map(([name]) => name);
  if (names === null) return possible;
  const chosen = names.split(',');
  const unknown = chosen.filter((name) => !possible.includes(name));
  return unknown.length === 0
    ? chosen
    : wrong(`--faults ${unknown.join(',')}: possible here are ${possible.join(', ')}`);
}

function sayRound(round: Round): void {
  const { number, what, changes, inForce, requests, decidedAfter, recoveredAfter, violations } = round;
  const seconds = (milliseconds: number | null): string =>
    milliseconds === null ? 'NOT IN TIME' : `after ${(milliseconds / 1000).toFixed(1)} s`;
  const well = `decided ${seconds(decidedAfter)}, well ${seconds(recoveredAfter)}`;
  say(`${number}: ${what}: ${changes} changes, ${inForce} in force; ${requests} requests; ${well}`);
  const rules = new Map<string, string[]>();
  for (const { rule, text } of violations) rules.set(rule, [...(rules.get(rule) ?? []), text]);
  for (const [rule, texts] of rules) say(`   ${texts.length} × ${rule}, the first: ${texts[0] ?? ''}`);
}

/** Writes the violations, events and logs of the rounds with violations. @returns the path of the file */
async function writeHistory(rounds: readonly Round[]): Promise<string> {
  const file = path.join(await mkdtemp(path.join(tmpdir(), 'merchant-gateway-soak-')), 'history.ndjson');
  const lines = rounds.flatMap(({ number, what, violations, events, logs }) =>
    violations.length === 0
      ? []
      : [
          { round: number, what, seed },
          ...violations,
          ...events.toSorted((one, other) => beginOf(one) - beginOf(other)),
          ...logs,
        ],
  );
  await writeFile(file, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  return file;
}

function wrong(what: string): never {
  process.stderr.write(`Not possible: ${what}\n\n${help}`);
  process.exit(2);
}
