import type { Socket } from 'node:net';
import fc from 'fast-check';
import t from 'tap';
import { ConnectionLimiter } from '../../src/edge/connections/connection-limiter.js';
import type { ConnectionSlot } from '../../src/edge/connections/connection-limiter.js';
import { sourceOf } from '../../src/policy/client-address.js';
import { parseIpAddress } from '../../src/policy/ip-address.js';

const socket = { destroy: () => undefined } as unknown as Socket;

/** A connection in the reference model, which is a list of connections. The model scans the whole list at each step. */
interface Plain {
  readonly place: ConnectionSlot;
  readonly source: string | null;
  merchant: string | null;
  isInUse: boolean;
  idleSince: number;
}

interface Step {
  readonly kind: 'open' | 'begin' | 'accept' | 'accept body' | 'body' | 'end' | 'close';
  readonly connection: number;
  readonly source: number;
  readonly merchant: number;
}

/**
 * Maximum number of connections. With this maximum, the limiter prefers to close a connection without a key if at least
 * two exist. Otherwise it prefers an idle connection of a merchant that has more than half of all connections.
 */
const most = 17;
/** The sources (client addresses or networks) of connections; null for a connection of a trusted proxy. */
const sources = ['s0', 's1', 's2', null] as const;

/**
 * Returns the connection that must close for a new one; undefined if none must.
 * @param changedAt for each source, when its number of connections without a key last changed
 */
function victimOf(open: readonly Plain[], changedAt: ReadonlyMap<string, number>): Plain | undefined {
  const withoutKey = open.filter(({ merchant, source }) => merchant === null && source !== null);
  const countOf = (wanted: string | null): number => withoutKey.filter(({ source }) => source === wanted).length;
  const largest = Math.max(...sources.map(countOf));
  const [source] = sources
    .filter((candidate) => candidate !== null)
    .filter((candidate) => countOf(candidate) === largest)
    .toSorted((a, b) => (changedAt.get(a) ?? 0) - (changedAt.get(b) ?? 0));
  const oldest = withoutKey.find((candidate) => candidate.source === source);
  const share = (wanted: string | null): number => open.filter(({ merchant }) => merchant === wanted).length;
  const [longestIdle] = open
    .filter(({ merchant, isInUse }) => merchant !== null && !isInUse && share(merchant) * 2 > most)
    .toSorted((a, b) => a.idleSince - b.idleSince);
  return withoutKey.length < 2 ? (longestIdle ?? oldest) : (oldest ?? longestIdle);
}

function agrees(steps: readonly Step[]): boolean {
  const limiter = new ConnectionLimiter({ connections: most, connectionsPerAddress: most });
  const open: Plain[] = [];
  const changedAt = new Map<string, number>();
  let time = 0;
  let isSame = true;
  const leave = (plain: Plain): void => {
    open.splice(open.indexOf(plain), 1);
    if (plain.merchant === null && plain.source !== null) changedAt.set(plain.source, time);
  };
  for (const { kind, connection, source: sourceIndex, merchant } of steps) {
    time += 1;
    const plain = open[connection % Math.max(1, open.length)];
    if (kind === 'open') {
      const victim = open.length < most ? undefined : victimOf(open, changedAt);
      const place = limiter.admit(socket);
      isSame &&= (place === null) === (open.length === most && victim === undefined);
      isSame &&= open.every((other) => other.place.isEvicted === (other === victim));
      if (victim !== undefined) leave(victim);
      time += 1;
      const source = sources[sourceIndex] ?? null;
      if (place === null) continue;
      if (source !== null) {
        place.countFor(source);
        changedAt.set(source, time);
      }
      open.push({ place, source, merchant: null, isInUse: false, idleSince: 0 });
    } else if (plain === undefined) continue;
    else if (kind === 'begin') {
      plain.place.requestBegan();
      if (!plain.isInUse) plain.idleSince = time;
    } else if (kind === 'accept' || kind === 'accept body') {
      plain.place.accepted(`m${merchant}`, kind === 'accept body');
      if (plain.merchant === null && plain.source !== null) changedAt.set(plain.source, time);
      plain.merchant = `m${merchant}`;
      plain.isInUse = kind === 'accept';
      plain.idleSince = time;
    } else if (kind === 'body') {
      if (plain.merchant === null) continue; // body bytes arrive only after the request was accepted
      plain.place.bodyArrived();
      plain.isInUse = true;
    } else if (kind === 'end') {
      plain.place.requestEnded();
      if (plain.isInUse) plain.idleSince = time;
      plain.isInUse = false;
    } else {
      leave(plain);
      plain.place.release();
      plain.place.release(); // as the later 'close' event of an evicted connection does
    }
    isSame &&=
      limiter.withoutKey === open.filter(({ merchant, source }) => merchant === null && source !== null).length;
  }
  return isSame;
}

t.test('the limiter evicts the same connection as a reference that scans all of them', (t) => {
  const step = fc.record<Step>({
    kind: fc.constantFrom<Step['kind']>(
      ...([
        'open',
        'open',
        'open',
        'open',
        'begin',
        'accept',
        'accept',
        'accept body',
        'body',
        'end',
        'end',
        'close',
      ] as const),
    ),
    connection: fc.nat(most),
    source: fc.nat(sources.length - 1),
    merchant: fc.nat(1),
  });
  t.doesNotThrow(() => {
    fc.assert(fc.property(fc.array(step, { minLength: 60, maxLength: 200, size: 'max' }), agrees), { numRuns: 2000 });
  });
  t.end();
});

t.test('events of a connection after its eviction are ignored', (t) => {
  const limiter = new ConnectionLimiter({ connections: 1, connectionsPerAddress: 1 });
  const first = admit(limiter, '192.0.2.1');
  const second = admit(limiter, '192.0.2.2');
  t.equal(first.isEvicted, true);
  first.accepted('m_1', false);
  first.requestEnded();
  first.countFor('192.0.2.1');
  first.release();
  second.accepted('m_2', false);
  t.equal(limiter.admit(socket), null, 'the second connection holds the only permit, with a request in flight');
  second.requestEnded();
  admit(limiter, '192.0.2.1');
  t.equal(second.isEvicted, true);
  t.same(limiter.evicted, { without_key: 1, merchant_share: 1 });
  t.end();
});

t.test('below a sixteenth of the connections, newcomers are spared; from it on, they are evicted first', (t) => {
  for (const [newcomers, evicted] of [
    [1, { without_key: 0, merchant_share: 1 }],
    [2, { without_key: 1, merchant_share: 0 }],
  ] as const) {
    const limiter = new ConnectionLimiter({ connections: 32, connectionsPerAddress: 32 });
    for (let count = newcomers; count < 32; count += 1) {
      const slot = admit(limiter, '192.0.2.1');
      slot.accepted('m_1', false);
      slot.requestEnded();
    }
    for (let count = 0; count < newcomers; count += 1) admit(limiter, '198.51.100.1');
    admit(limiter, '198.51.100.2');
    t.same(limiter.evicted, evicted, `${newcomers} of 32`);
  }
  t.end();
});

t.test('the addresses of an IPv6 /64 count as one source', (t) => {
  const limiter = new ConnectionLimiter({ connections: 4, connectionsPerAddress: 3 });
  const [alone, ...many] = ['2001:db8:1::1', '2001:db8:2::1', '2001:db8:2::ffff:2', '2001:db8:2:0:a::3'].map(
    (address) => admit(limiter, address),
  );
  t.equal(limiter.isFull(sourceOf(parsed('2001:db8:2::4'))), true);
  t.equal(limiter.isFull(sourceOf(parsed('2001:db8:2:1::4'))), false);
  admit(limiter, '2001:db8:3::1');
  t.same(
    [alone, ...many].map((place) => place?.isEvicted),
    [false, true, false, false],
  );
  t.end();
});

function parsed(address: string) {
  const found = parseIpAddress(address);
  if (found === null) throw new Error(`${address} is no address`);
  return found;
}

function admit(limiter: ConnectionLimiter, address: string): ConnectionSlot {
  const place = limiter.admit(socket);
  if (place === null) throw new Error('there is no place');
  place.countFor(sourceOf(parsed(address)));
  return place;
}
