import type { Transport } from '../load/open-load.js';
import { accepted, badFormat, payouts, unknownKey, zipf } from './requests.js';

/** A kind of load, identical for all subjects. */
export interface Scenario {
  readonly name: string;
  /** The title in tables and plots. */
  readonly title: string;
  /** Names of the subjects under this load. */
  readonly subjects: readonly string[];
  readonly transport: Transport;
  /** A fixed rate of requests per second, to measure latency; null: as many requests as possible. */
  readonly perSecond: number | null;
  /** The expected status of each response. */
  readonly status: number;
  /** Number of known keys. */
  readonly keys: number;
  /** Creates a function that returns the next request on each call, for this number of known keys. */
  readonly requests: (keys: number) => () => string;
}

const most = ['gateway', 'stock-log', 'dispatch', 'fast-proxy', 'nginx', 'haproxy'];
const all = [...most, 'gateway-log-off', 'stock', 'http-proxy', 'express', 'express-gateway'];
const withSockets = [...most, 'sockets'];
const common = { transport: 'plain', perSecond: null, status: 200, keys: 1000, subjects: most } as const;
const atRate = { ...common, perSecond: 8000 } as const;
const accept = (keys: number): (() => string) => accepted(keys);

/** Every kind of load, in the order of the tables. */
export const scenarios: readonly Scenario[] = [
  { ...common, name: 'get', title: 'Accepted GET', subjects: all, requests: accept },
  { ...common, name: 'post', title: 'Accepted POST of 206 bytes', requests: payouts },
  {
    ...{ ...common, name: 'large', title: 'Accepted GET, answer of 64 KiB' },
    requests: (keys) => accepted(keys, '/v1/transactions?per_page=100'),
  },
  {
    ...{ ...common, name: 'bad-format', title: '401, bad format of the key', status: 401 },
    ...{ subjects: withSockets, requests: badFormat },
  },
  {
    ...{ ...common, name: 'unknown-key', title: '401, unknown key', status: 401 },
    ...{ subjects: withSockets, requests: unknownKey },
  },
  { ...common, name: 'tls', title: 'Accepted GET, TLS, connections kept', transport: 'tls', requests: accept },
  { ...common, name: 'tls-new', title: 'Accepted GET, a TLS connection each', transport: 'tls-new', requests: accept },
  {
    ...{ ...common, name: 'tls-resumed', title: 'Accepted GET, a resumed TLS connection each' },
    ...{ transport: 'tls-resumed', subjects: withSockets, requests: accept },
  },
  {
    ...atRate,
    name: 'rate',
    title: 'Accepted GET, 8,000 a second',
    subjects: ['gateway', 'stock-log', 'nginx'],
    requests: accept,
  },
  {
    ...{ ...atRate, name: 'keys', title: 'Accepted GET, 8,000 a second, keys by a Zipf draw' },
    ...{ subjects: ['gateway', 'gateway-million'], requests: zipf },
  },
  {
    ...{ ...atRate, name: 'changes', title: 'Accepted GET, 8,000 a second, keys and Tor list changing' },
    ...{ subjects: ['gateway', 'gateway-changes'], requests: accept },
  },
];
