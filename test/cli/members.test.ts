import path from 'node:path';
import { writeFileSync } from 'node:fs';
import t from 'tap';
import { run } from '../../src/cli/run.js';
import { consoleFixture, origin } from '../console/console-fixture.js';
import { registryFixture, token } from '../registry/registry-fixture.js';
import { ran } from './ran.js';

t.test('members are invited, listed and changed, and ids are found', async (t) => {
  const { app, createMerchant, createKey, enter } = await consoleFixture(t, 'sqlite::memory:');
  const registry = await app.listen({ host: '127.0.0.1', port: 0 });
  const tokenFile = path.join(t.testdir(), 'token');
  writeFileSync(tokenFile, token);
  const command = (...args: string[]) => ran(...args, '--registry', registry, '--token-file', tokenFile);
  const { id } = await createMerchant({ name: 'Till & Sons' });
  const of = ['--merchant', id];
  t.match(await command('members', 'list', ...of), { status: 0, out: /^No members\.\n$/ });

  const invited = await command('members', 'invite', 'ada@example.com', ...of, '--role', 'merchant-admin');
  t.equal(invited.err, '');
  t.match(
    invited.out,
    /Send this link to ada@example\.com over a private channel: it signs them in once, and is valid until 2026-/,
  );
  const [, member = ''] = /(adm_\w+)/.exec(invited.out) ?? [];
  const [, secret = ''] = /enter#(\S+)/.exec(invited.out) ?? [];
  t.ok(invited.out.includes(`${origin}/console/enter#`));
  t.equal((await enter(secret)).status, 200, 'the printed link works');

  const again = await command('members', 'link', member, ...of, '--json');
  t.match(JSON.parse(again.out), { name: 'ada@example.com', url: /enter#/ });
  t.match(await command('members', 'set', member, ...of, '--role', 'merchant-viewer'), {
    status: 0,
    out: /ada@example\.com +ACTIVE +merchant-viewer +with links/,
  });
  t.match(await command('members', 'set', member, ...of, '--disable'), { status: 0, out: /DISABLED/ });
  t.match(await command('members', 'list', ...of, '--status', 'ACTIVE'), { out: /^No members\.\n$/ });
  t.match(await command('members', 'list', ...of), { out: /ada@example\.com[^]*\n1 member\.\n$/ });
  t.match(await command('members', 'set', member, ...of), { status: 2, err: /give --role, --enable or --disable/ });
  t.match(await command('members', 'set', member, ...of, '--enable', '--disable'), { status: 2, err: /not both/ });
  t.match(await command('members', 'set', 'a b', ...of, '--enable'), {
    status: 2,
    err: /see "merchant-gateway members list"/,
  });
  t.match(await command('members', 'invite', 'x', ...of, '--role', 'owner'), { status: 2, err: /merchant-viewer/ });

  const key = await createKey(id, { label: 'till 7' });
  t.match(await command('find', 'till'), { status: 0, out: new RegExp(`merchant +${id} +Till & Sons`) });
  t.match(await command('find', key.keyId), { out: new RegExp(`key +${key.keyId} +till 7 +${id}`) });
  t.match(await command('find', 'ada@example.com', '--json'), { out: /"kind": "administrator"/ });
  t.match(await command('find', 'nothing here'), {
    status: 0,
    out: 'No merchant, key, request or administrator has this name, id or address.\n',
  });
  const pasted = await command('find', key.key);
  t.match(pasted, { status: 2, err: /this is an API key or a token/ });
  t.notOk(pasted.err.includes(key.key));
  const listed = await command('keys', 'list', ...of, '--label', 'TILL', '--status', 'ACTIVE');
  t.match(listed.out, /LAST USE +LABEL\n[^]*never +never +till 7/);
});

t.test('a member who was added without a link is reported, with the command for a link', async (t) => {
  const { app, call, createMerchant } = await registryFixture(t, 'sqlite::memory:'); // without a console
  const registry = await app.listen({ host: '127.0.0.1', port: 0 });
  const tokenFile = path.join(t.testdir(), 'token');
  writeFileSync(tokenFile, token);
  const { id } = await createMerchant();
  let err = '';
  const access = ['--registry', registry, '--token-file', tokenFile];
  const args = ['members', 'invite', 'ada@example.com', '--merchant', id, '--role', 'merchant-admin', ...access];
  t.equal(await run(args, { out: () => undefined, err: (text) => (err += text) }), 1);
  const { body } = await call<{ id: string }[]>('GET', `/merchants/${id}/members`);
  const next = `merchant-gateway members link ${body.data[0]?.id ?? ''} --merchant ${id}`;
  t.match(err, /This registry has no console: set registry\.console/);
  t.ok(err.endsWith(`\nThe member was added without a link. For a link, run "${next}".\n`), err);
});
