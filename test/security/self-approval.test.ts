import { randomBytes } from 'node:crypto';
import type { Test } from 'tap';
import { noRules } from '../../src/registry/approvals/guard.js';
import { applyConfiguredRules } from '../../src/registry/approvals/rules.js';
import { consoleFixture, sessionIn } from '../console/console-fixture.js';
import { onEachDatabase } from '../database/each-database.js';

interface Shown {
  readonly token: string;
  readonly code?: string;
  readonly approvalId: string;
}

const refused = [403, 'approval_not_independent'];
const approved = [200, undefined];

/** A registry in which going live needs approval. `who` is a token, or the cookie of a session of the console. */
async function fixture(t: Test, url: string) {
  const registry = await consoleFixture(t, url);
  const { ask, call, createLink, createMerchant, database, enter, time } = registry;
  const context = { database, clock: time, random: randomBytes };
  await applyConfiguredRules(context, { ...noRules, goLive: true }, undefined);
  const send = async (
    who: string,
    method: 'PATCH' | 'POST',
    path: string,
    body?: object,
  ): Promise<{ readonly status: number; readonly data: Shown }> => {
    const sent = body === undefined ? {} : { body };
    const response = who.startsWith('mga_')
      ? await call<Shown>(method, path, { ...sent, headers: { authorization: `Bearer ${who}` } })
      : await ask<Shown>(method, `/console/api${path}`, { ...sent, session: who });
    return { status: response.status, data: response.body.data };
  };
  /** Requests that a merchant goes live; returns the id of the request. */
  const request = async (who: string, merchantId?: string): Promise<string> => {
    const id = merchantId ?? (await createMerchant()).id;
    const { status, data } = await send(who, 'PATCH', `/merchants/${id}`, { goLive: true });
    t.match([status, data.code], [409, 'approval_required']);
    return data.approvalId;
  };
  const approve = async (id: string, who: string) => {
    const { status, data } = await send(who, 'POST', `/approvals/${id}/approve`);
    return [status, data.code];
  };
  /** Issues a token, by default to the administrator who issues it. */
  const issue = async (who: string, administratorId?: string): Promise<string> => {
    const body = { name: 'x', ...(administratorId !== undefined && { administratorId }) };
    return (await send(who, 'POST', '/tokens', body)).data.token;
  };
  /** Signs an administrator in with a link that was created with `token`. Returns the cookie of the session. */
  const enterAs = async (administrator: string, token: string): Promise<string> =>
    sessionIn(await enter(await createLink(token, { administrator })));
  return { ...registry, approve, enterAs, issue, request };
}

onEachDatabase('nobody approves a request that was made with a token or link of theirs', async (t, url) => {
  const { approve, createMerchant, createPerson, enterAs, issue, request } = await fixture(t, url);
  const [ada, olu] = [await createPerson('ada', ['owner']), await createPerson('olu', ['operator'])];
  const issued = await issue(ada.token, olu.id);
  const session = await enterAs('olu', ada.token);
  for (const [what, who] of [
    ['a token', issued],
    ['a token that was created with that token', await issue(issued)],
    ['a session', session],
    ['a session that was opened with that token', await enterAs('olu', issued)],
    ['a token that was created in that session', await issue(session)],
  ] as const) {
    const id = await request(who);
    t.same(await approve(id, ada.token), refused, what);
    t.same(await approve(id, await issue(ada.token)), refused, `${what}, with another token`);
  }
  const { id: merchantId } = await createMerchant();
  const id = await request(issued, merchantId);
  const again = await request(olu.token, merchantId);
  t.not(again, id, 'the same request with a token that nobody else knows is another request');
  t.same(await approve(id, ada.token), refused);
  t.same(await approve(again, ada.token), approved);
});

onEachDatabase('an administrator whose own token somebody else issued is an issuer too', async (t, url) => {
  const { approve, createPerson, enterAs, issue, request } = await fixture(t, url);
  const [ada, obi, olu] = [
    await createPerson('ada', ['owner']),
    await createPerson('obi', ['owner']),
    await createPerson('olu', ['operator']),
  ];
  const ofObi = await issue(ada.token, obi.id);
  const [passedOn, session] = [await issue(ofObi, olu.id), await enterAs('olu', ofObi)];
  for (const who of [passedOn, session, await issue(passedOn)]) {
    t.same(await approve(await request(ofObi), who), refused);
    t.same(await approve(await request(who), ofObi), refused);
    t.same(await approve(await request(ada.token), who), refused, 'nor is it independent of the first issuer');
    t.same(await approve(await request(who), ada.token), refused);
  }
  t.same(await approve(await request(obi.token), olu.token), approved);
  t.same(await approve(await request(olu.token), obi.token), approved);
});

onEachDatabase('a token or link of the former release has its only issuer', async (t, url) => {
  const { approve, createPerson, database, enterAs, issue, request } = await fixture(t, url);
  const [ada, olu] = [await createPerson('ada', ['owner']), await createPerson('olu', ['operator'])];
  const [issued, session] = [await issue(ada.token, olu.id), await enterAs('olu', ada.token)];
  await database.updateTable('administrator_tokens').set({ issuers: null }).execute();
  await database.updateTable('console_sessions').set({ issuers: null }).execute();
  for (const who of [issued, session]) {
    t.same(await approve(await request(who), ada.token), refused);
    t.same(await approve(await request(ada.token), who), refused);
  }
});
