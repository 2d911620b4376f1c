import { setTimeout as wait } from 'node:timers/promises';
import { OperatorError } from '../../../config/operator-error.js';
import Type, { Check, type TSchema, type Static } from '../../../typebox/typebox.js';
import { type ApiTarget, senderFor } from '../admin-client.js';
import { parseJson, parseSuccess } from '../admin-response.js';
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
      redirect: 'error',
      signal: AbortSignal.timeout(timeoutMilliseconds),
    });
    text = (await response.text()).slice(0, mostCharacters);
  } catch (error) {
    throw new OperatorError(
      `The registry at ${address.href} cannot be reached: check --registry and the network, and try again.`,
      { cause: error },
    );
  }
  const envelope = parseJson(text);
  const parsed = parseSuccess(envelope);
  if (parsed !== null && Check(expects, parsed.data)) return { data: parsed.data };
  const failed = Type.Object({ message: Type.String(), data: Type.Object({ code: Type.String() }) });
  if (Check(failed, envelope)) return { code: envelope.data.code, message: envelope.message };
  throw new OperatorError(`${url.href} did not respond like a registry that supports sign-in: check --registry.`);
}

const leastMilliseconds = 5 * 60_000;
const betweenReadsMilliseconds = 200;

/**
 * Returns the token of the sign-in; null if the user has not signed in. Refreshes a token that expires within 5
 * minutes. Without a refresh handle, or while the provider is unavailable, returns the old token until it expires.
 * @throws OperatorError if the sign-in has ended, belongs to another registry, or the registry is unreachable
 */
export async function sessionToken(file: string, target: ApiTarget, now: () => number): Promise<string | null> {
  const { address } = target;
  const session = await readSession(file);
  if (session === null) return null;
  // Sending the token to another registry would disclose it.
  if (session.registry !== address.href)
    throw new OperatorError(`The token file ${file} is for another registry: check --registry and --token-file.`);
  const left = Date.parse(session.expiresAt) - now();
  if (left >= leastMilliseconds) return session.token;
  if (session.handle === null) {
    if (left > 0) return session.token;
    throw new OperatorError('The sign-in has ended: run "merchant-gateway login".');
  }
  const refreshed = await askSignIn(target, 'refresh', { handle: session.handle }, sessionData);
  if ('data' in refreshed) {
    const { token, expiresAt, handle } = refreshed.data;
    await writeSession(file, { registry: address.href, token, expiresAt, handle });
    return token;
  }
  if (refreshed.code === 'refresh_running') return otherToken(file, session);
  if (left > 0 && refreshed.code === 'provider_unavailable') return session.token;
  throw new OperatorError(`${refreshed.message}. Run "merchant-gateway login".`);
}

/** Waits until another command, which is refreshing the sign-in, has written the new token, and returns that token. */
async function otherToken(file: string, former: StoredSession): Promise<string> {
  for (let tries = 0; tries < 25; tries += 1) {
    const session = await readSession(file);
    if (session !== null && session.token !== former.token) return session.token;
    await wait(betweenReadsMilliseconds);
  }
  throw new OperatorError('Another command is refreshing the sign-in: try again.');
}
