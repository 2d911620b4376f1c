import { setTimeout as wait } from 'node:timers/promises';
import { OperatorError } from '../../../config/operator-error.js';
import Type, { Check, type TSchema, type Static } from '../../../typebox/typebox.js';
import { completely } from '../../interruption.js';
import { type ApiTarget, senderFor } from '../admin-client.js';
import { parseJson, parseSuccess } from '../admin-response.js';
import { registryPeer } from '../peer.js';
import { unreachable } from '../refused.js';
import { readSession, type StoredSession, writeSession } from './session-file.js';

/** The response of a sign-in or refresh. */
export const sessionData = Type.Object({
  token: Type.String(),
  expiresAt: Type.String(),
  name: Type.String(),
  roles: Type.Array(Type.String()),
  handle: Type.Union([Type.String(), Type.Null()]),
});

/** The result of a request to a sign-in route: the data, or the code and message of the failure. */
export type SignInResult<Data> = { readonly data: Data } | { readonly code: string; readonly message: string };

const timeoutMilliseconds = 20_000;
const mostCharacters = 64 * 1024;

/**
 * Sends a request to a sign-in route, which needs no token.
 * @throws OperatorError if the registry is unreachable, or does not respond like a registry with sign-in
 */
export async function askSignIn<Schema extends TSchema>(
  { address, trust }: ApiTarget,
  route: 'device' | 'token' | 'refresh',
  body: object | null,
  expects: Schema,
): Promise<SignInResult<Static<Schema>>> {
  const url = new URL(address);
  url.pathname = `${url.pathname.replace(/\/+$/, '')}/sign-in/${route}`;
  let text: string;
  try {
    const send = await senderFor(trust);
    const response = await send(url, {
      method: 'POST',
      headers: body === null ? {} : { 'content-type': 'application/json' },
      body: body === null ? null : JSON.stringify(body),
      redirect: 'manual',
      signal: AbortSignal.timeout(timeoutMilliseconds),
    });
    text = (await response.text()).slice(0, mostCharacters);
  } catch (error) {
    const asked = { peer: registryPeer, address: address.href, isChange: false, ifUnclear: undefined };
    throw unreachable(asked, error, timeoutMilliseconds);
  }
  const envelope = parseJson(text);
  const parsed = parseSuccess(envelope);
  if (parsed !== null && Check(expects, parsed.data)) return { data: parsed.data };
  const failed = Type.Object({ message: Type.String(), data: Type.Object({ code: Type.String() }) });
  if (Check(failed, envelope)) return { code: envelope.data.code, message: envelope.message };
  throw new OperatorError(`${url.href} did not respond like a registry that supports sign-in: check --registry.`);
}

const leastMilliseconds = 5 * 60_000;
/**
 * Commands do not refresh a session that is younger than this, in milliseconds. Even a new session can expire within 5
 * minutes: near the end of the sign-in, or if the clock of this machine is fast. Each command would then refresh it.
 */
const newMilliseconds = 10_000;
/**
 * How long to wait while another command refreshes the sign-in, in milliseconds. While a refresh is in progress, the
 * registry refuses another refresh, but for at most this time.
 */
const longestWaitMilliseconds = 25_000;
const betweenReadsMilliseconds = 200;

/**
 * Returns the token of the sign-in; null if the user has not signed in. Refreshes a token that expires within 5
 * minutes, unless the session is new. Without a refresh handle, or while the provider is unavailable, returns the old
 * token until it expires.
 * @param rejected a token that the registry rejected, for example because another command has refreshed the sign-in.
 *   It is replaced by a token that another command has stored, or by a refresh, unless the session is new.
 * @throws OperatorError if the sign-in has ended, belongs to another registry, or the registry is unreachable
 */
export async function sessionToken(
  file: string,
  target: ApiTarget,
  now: () => number,
  rejected: string | null = null,
): Promise<string | null> {
  const session = await readOwnSession(file, target);
  if (session === null) return null;
  const left = Date.parse(session.expiresAt) - now();
  if ((left >= leastMilliseconds && session.token !== rejected) || isNew(session, now())) return session.token;
  if (session.handle === null) {
    if (left > 0) return session.token;
    throw new OperatorError('The sign-in has ended: run "merchant-gateway login".');
  }
  const { handle } = session;
  // The refresh ends the former session. If Ctrl-C ended the command before the new one is stored, the sign-in would be
  // lost.
  const refreshed = await completely(async () => {
    const result = await askSignIn(target, 'refresh', { handle }, sessionData);
    if ('data' in result) await storeSession(file, target, result.data, now);
    return result;
  });
  if ('data' in refreshed) return refreshed.data.token;
  if (refreshed.code === 'refresh_running') return otherToken(file, target, session);
  if (left > 0 && refreshed.code === 'provider_unavailable') return session.token;
  throw new OperatorError(`${refreshed.message}. Run "merchant-gateway login".`);
}

/** Stores a session that the registry has just sent. @throws OperatorError if the file cannot be written */
export async function storeSession(
  file: string,
  { address }: ApiTarget,
  { token, expiresAt, handle }: Static<typeof sessionData>,
  now: () => number,
): Promise<void> {
  const receivedAt = new Date(now()).toISOString();
  await writeSession(file, { registry: address.href, token, expiresAt, handle, receivedAt });
}

/**
 * Reads the session; null if the user has not signed in.
 * @throws OperatorError for the session of another registry, because sending its token would disclose it
 */
export async function readOwnSession(file: string, { address }: ApiTarget): Promise<StoredSession | null> {
  const session = await readSession(file);
  if (session !== null && session.registry !== address.href)
    throw new OperatorError(`The token file ${file} is for another registry: check --registry and --token-file.`);
  return session;
}

/** Whether a session is less than 10 s old. False if it seems to come from the future, after the clock was set back. */
function isNew({ receivedAt = '' }: StoredSession, now: number): boolean {
  const age = now - Date.parse(receivedAt);
  return age >= 0 && age < newMilliseconds;
}

/**
 * Waits until another command, which is refreshing the sign-in, has written the new token. Returns the new token.
 * @throws OperatorError after 25 seconds
 */
async function otherToken(file: string, target: ApiTarget, former: StoredSession): Promise<string> {
  for (let waited = 0; waited < longestWaitMilliseconds; waited += betweenReadsMilliseconds) {
    const session = await readOwnSession(file, target);
    if (session !== null && session.token !== former.token) return session.token;
    await wait(betweenReadsMilliseconds);
  }
  throw new OperatorError('Another command has not finished refreshing the sign-in within 25 seconds: try again.');
}
