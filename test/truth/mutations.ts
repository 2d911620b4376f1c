/** A fault to plant in the built product, and the options with which a run finds it. */
export interface Mutation {
  readonly what: string;
  /** Path relative to `dist`. */
  readonly file: string;
  /** Text that occurs exactly once in the file. */
  readonly from: string;
  readonly to: string;
  /** Additional options of the run. */
  readonly options: readonly string[];
}

const acknowledgement = 'adapters/redis/gateway/acknowledgement-text.js';
const gateway = 'adapters/redis/gateway/redis-records.js';
const heartbeat = 'adapters/redis/gateway/heartbeat.js';
const knownGateways = 'registry/gateways/known-gateways.js';
const projection = 'registry/projection/projection.js';
const propagation = 'registry/propagation.js';
const rebuild = 'registry/projection/rebuild.js';
const pause = 'await new Promise((done) => setTimeout(done, 300));';
/** Options for faults that last longer than a gateway may use stale records. */
const long = ['--stale', '1', '--hold', '10'];

/** The mutations that the search must find. */
export const mutations: readonly Mutation[] = [
  {
    what: 'a gateway keeps the record of a key when it hears of a change',
    file: gateway,
    from: 'this.#keys.drop(lookupIds);',
    to: '',
    options: ['--faults', 'delay'],
  },
  {
    what: 'a gateway keeps the record of a merchant when it hears of a change',
    file: gateway,
    from: 'this.#merchants.drop(merchantIds);',
    to: '',
    options: ['--faults', 'delay'],
  },
  {
    what: 'a gateway acknowledges the change that comes next',
    file: acknowledgement,
    from: '{ revision, generation, ...reported, ...identity }',
    to: '{ revision: revision + 1, generation, ...reported, ...identity }',
    options: ['--faults', 'delay,stop-gateway'],
  },
  {
    what: 'a gateway serves what it holds without end',
    file: 'adapters/redis/gateway/lease.js',
    from: 'return since < 0 ? Infinity : Math.max(since, performance.now() - monotonic);',
    to: 'return 0;',
    options: ['--faults', 'cut', ...long],
  },
  {
    what: 'a gateway believes a store that has lost changes',
    file: 'adapters/redis/store-state.js',
    from: 'generation === this.#generation && revision < this.#highestRevision',
    to: 'false',
    options: ['--faults', 'old-snapshot,stop-registry'],
  },
  {
    what: 'a gateway is sure of a server that may have been replaced',
    file: heartbeat,
    from: 'if (!isAsked) this.standing.lease.sure(at);',
    to: 'this.standing.lease.sure(at);',
    options: ['--topology', 'sentinel', '--faults', 'split', ...long],
  },
  {
    what: 'the registry goes on with a store that has lost changes',
    file: 'registry/projection/continuity.js',
    from: 'if (!isWhole || history.published',
    to: 'if (meta !== null) return true; if (!isWhole || history.published',
    options: ['--faults', 'old-snapshot'],
  },
  {
    what: 'the registry begins a generation without its records',
    file: rebuild,
    from: 'await writer.rewrite(entries, revision);',
    to: '',
    options: ['--faults', 'old-snapshot'],
  },
  {
    what: 'the registry begins a generation before its records',
    file: rebuild,
    from: 'const progress = {',
    to: `await store.complete({ version: 1, generation, projectedAt: new Date(clock.now()).toISOString(), database: await databaseName(database), servers: [...servers], replicas: 0 }, { revision, change: ulid(clock.now()) }); ${pause} const progress = {`,
    options: ['--faults', 'restart-redis,old-snapshot'],
  },
  {
    what: 'the registry publishes a change before its records',
    file: projection,
    from: 'await this.#writer.write(batch);',
    to: `await store.publish(batch); ${pause} await this.#writer.write(batch);`,
    options: ['--faults', 'delay'],
  },
  {
    what: 'the registry takes each gateway for one that knows',
    file: propagation,
    from: '(revision ?? -1) < this.#revision',
    to: 'false',
    options: ['--faults', 'delay,cut'],
  },
  {
    what: 'the registry does not count gateways that are silent',
    file: propagation,
    from: 'known.gateways.filter((one) =>',
    to: 'known.gateways.filter((one) => one.silentMilliseconds < 600).filter((one) =>',
    options: ['--faults', 'cut'],
  },
  {
    what: 'the registry forgets a gateway whose acknowledgement is lost',
    file: knownGateways,
    from: 'const rows = await database.selectFrom("gateways").selectAll().execute();',
    to: 'const rows = [];',
    options: ['--faults', 'cut,delete-gateways'],
  },
  {
    what: 'the registry takes a gateway off the roster while it serves what it holds',
    file: 'registry/gateways/roster.js',
    from: 'seen.silentMilliseconds >= row.lifetime_milliseconds',
    to: 'seen.silentMilliseconds >= 1000',
    options: ['--faults', 'cut'],
  },
  {
    what: 'the registry holds back nothing of what a restored database lacks',
    file: rebuild,
    from: 'if (canLackChanges && !await this.#holdBack(loss, snapshot.revision)) return null;',
    to: '',
    options: ['--faults', 'restore-sql'],
  },
];
