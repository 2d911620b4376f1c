import { createRequire } from 'node:module';
import type * as Undici from 'undici';

/**
 * The one door to undici, which loads those parts of it that there is use for. The package as a whole loads fetch,
 * WebSockets, caches and mocks as well, and has Node load its own of them: 5 MB of memory in every process.
 */
const require = createRequire(import.meta.url);

/** Errors of a connection or an answer, told apart by their classes. */
export const errors = require('undici/lib/core/errors.js') as typeof Undici.errors;

/** Makes what connects, over TLS where the origin asks for it, in bounded time. */
export const buildConnector = require('undici/lib/core/connect.js') as typeof Undici.buildConnector;
export type Connector = Undici.buildConnector.connector;

/** Connections to any origin, one, or some of one. */
export const Agent = require('undici/lib/dispatcher/agent.js') as typeof Undici.Agent;
export type Agent = Undici.Agent;
export const BalancedPool = require('undici/lib/dispatcher/balanced-pool.js') as typeof Undici.BalancedPool;
export const Client = require('undici/lib/dispatcher/client.js') as typeof Undici.Client;
export const Pool = require('undici/lib/dispatcher/pool.js') as typeof Undici.Pool;
export type Pool = Undici.Pool;
export const Dispatcher = require('undici/lib/dispatcher/dispatcher.js') as typeof Undici.Dispatcher;
export type Dispatcher = Undici.Dispatcher;

/** An answer: its head, and its body still to be read or dumped. */
export type Answer = Undici.Dispatcher.ResponseData;

type Ask = (this: Dispatcher, options: Undici.Dispatcher.RequestOptions) => Promise<Answer>;
const ask = require('undici/lib/api/api-request.js') as Ask;

/** What is asked, and when it is given up. */
export type RequestOptions = Pick<Undici.Dispatcher.RequestOptions, 'method' | 'body' | 'signal'> & {
  readonly headers: Readonly<Record<string, string>>;
};

/** Asks over the connections of a dispatcher. Redirects are not followed. Rejects with one of `errors`, a system error or the signal's reason. */
export function request(dispatcher: Dispatcher, url: URL, options: RequestOptions): Promise<Answer> {
  return ask.call(dispatcher, { ...options, origin: url.origin, path: url.pathname + url.search });
}
