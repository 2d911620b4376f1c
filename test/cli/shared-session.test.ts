import type { ServerResponse } from 'node:http';
import path from 'node:path';
import t, { type Test } from 'tap';
import { accessOf } from '../../src/cli/admin/access.js';
import { AdminClient } from '../../src/cli/admin/admin-client.js';
import { registryPeer } from '../../src/cli/admin/peer.js';
import { type StoredSession, writeSession } from '../../src/cli/admin/session/session-file.js';
import { sessionToken } from '../../src/cli/admin/session/session-token.js';
import Type from '../../src/typebox/typebox.js';
import { startServer } from '../start-server.js';

const minute = 60_000;

/** A registry that accepts one token, and the token file that the commands of a user share. */
async function fixture(t: Test) {
  const now = Date.now();
  const file = path.join(t.testdir(), 'token');
  const state = {
    /** The token that the registry accepts. */
    valid: 'token-0',
    /** How long a refreshed session lasts, in milliseconds. */
    lasts: minute,
    /**
     * Stores the session of another command that is refreshing now. A refresh by this command is then refused. Null if
     * there is no other command.
     */
    other: null as (() => Promise<void>) | null,
    refreshed: [] as string[],
    tokens: [] as string[],
  };
  const store = (token: string, more: Partial<StoredSession> = {}): Promise<void> =>
    writeSession(file, {
      ...{ registry: target.address.href, token, expiresAt: new Date(now + minute).toISOString() },
      ...{ handle: `handle-of-${token}`, ...more },
    });
  const refresh = async (body: string, response: ServerResponse): Promise<void> => {
    const { handle } = JSON.parse(body) as { readonly handle: string };
    state.refreshed.push(handle);
    if (state.other !== null) {
      const data = { errors: [], code: 'refresh_running' };
      response.writeHead(409).end(JSON.stringify({ success: false, message: 'Another request refreshes', data }));
      await state.other();
      return;
    }
    state.valid = `token-${state.refreshed.length}`;
    const expiresAt = new Date(now + state.lasts).toISOString();
    const data = { token: state.valid, expiresAt, name: 'ada', roles: [], handle: `handle-of-${state.valid}` };
    response.end(JSON.stringify({ success: true, message: '', data }));
  };
  const url = await startServer(t, (request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => (body += chunk.toString()));
    request.on('end', () => {
      response.setHeader('content-type', 'application/json');
      if (request.url === '/sign-in/refresh') {
        void refresh(body, response);
        return;
      }
      const { authorization = '' } = request.headers;
      state.tokens.push(authorization.replace('Bearer ', ''));
      const isValid = authorization === `Bearer ${state.valid}`;
      const success = { success: true, message: '', data: null };
      response.writeHead(isValid ? 200 : 401);
      response.end(JSON.stringify(isValid ? success : { ...success, success: false, message: 'Invalid token' }));
    });
  });
  const address = new URL(url);
  const target = { address, trust: null };
  const tokenAt = (at: number, rejected?: string) => sessionToken(file, target, () => at, rejected);
  /** Opens a client with the stored session. Returns a function that sends a request. */
  const open = async () => {
    const access = await accessOf({ address: address.href, tokenFile: file }, {}, registryPeer);
    const client = new AdminClient(access);
    return () => client.ask({ method: 'POST', path: ['change'], body: {}, expects: Type.Null() });
  };
  return { now, state, store, target, tokenAt, open };
}

t.test('a session that was just received is not refreshed, even if it seems to end soon', async (t) => {
  const { now, state, store, tokenAt } = await fixture(t);
  await store('token-0'); // as the previous release stores it, without `receivedAt`
  t.equal(await tokenAt(now), 'token-1');
  t.equal(await tokenAt(now + 9_999), 'token-1');
  t.equal(await tokenAt(now + 9_999, 'token-1'), 'token-1', 'not even if the registry rejects it');
  t.same(state.refreshed, ['handle-of-token-0'], 'once');
  t.equal(await tokenAt(now + 10_000), 'token-2');
  t.equal(await tokenAt(now), 'token-3', 'a session from the future, after the clock was set back');
  t.equal(await tokenAt(now + 9_999), 'token-3');
  state.lasts = -60 * minute; // the clock of this machine is fast
  t.equal(await tokenAt(now + 10_000), 'token-4');
  t.equal(await tokenAt(now + 10_001), 'token-4');
  t.equal(state.refreshed.length, 4);
});

t.test('a command uses the session that another command has stored meanwhile', async (t) => {
  const { now, state, store, tokenAt } = await fixture(t);
  await store('token-0');
  state.other = () => store('token-of-other');
  t.equal(await tokenAt(now), 'token-of-other');
  t.same(state.refreshed, ['handle-of-token-0'], 'the command did not refresh a second time');
});

t.test('a session of another registry is not taken from the file', async (t) => {
  const { now, state, store, tokenAt } = await fixture(t);
  await store('token-0');
  state.other = () => store('token-of-other', { registry: 'http://127.0.0.1:1/' });
  await t.rejects(tokenAt(now), { message: /is for another registry/ });
});

t.test('a request whose session another command has replaced is sent again with the new one', async (t) => {
  const { now, state, store, open } = await fixture(t);
  const expiresAt = new Date(now + 14 * minute).toISOString();
  await store('token-0', { expiresAt });
  const change = await open();
  state.valid = 'token-of-other';
  await store('token-of-other', { expiresAt });
  t.match(await change(), { data: null });
  t.same(state.tokens, ['token-0', 'token-of-other']);
  t.same(state.refreshed, []);

  state.valid = 'token-of-third'; // which is not stored yet
  state.other = () => store('token-of-third', { expiresAt });
  t.match(await change(), { data: null });
  t.same(state.refreshed, ['handle-of-token-of-other']);

  state.other = null;
  state.valid = 'unknown'; // the registry has ended the session
  t.match(await change(), { data: null });
  t.same(state.tokens.slice(4), ['token-of-third', 'token-2'], 'a refresh shows whether the sign-in has ended too');
});

t.test('a rejected token is sent once if there is no other one', async (t) => {
  const { now, state, store, open } = await fixture(t);
  await store('token-0', { expiresAt: new Date(now + 14 * minute).toISOString(), handle: null });
  const change = await open();
  state.valid = 'unknown';
  await t.rejects(change(), { message: /Invalid token/ });
  t.same(state.tokens, ['token-0']);
  t.same(state.refreshed, []);
});
