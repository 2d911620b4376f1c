import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { writeFileSync } from 'node:fs';
import t from 'tap';
import { noRules } from '../../src/registry/approvals/guard.js';
import { applyConfiguredRules } from '../../src/registry/approvals/rules.js';
import { gateway } from '../registry/memory-records-store.js';
import { registryFixture, token } from '../registry/registry-fixture.js';
import { ran } from './ran.js';

t.test('an operator requests a go-live, and another one shows and approves it', async (t) => {
  const { app, call, createMerchant, database, store, time } = await registryFixture(t, 'sqlite::memory:');
  store.live = ['a', 'b'].map((name) => gateway(name));
  const registry = await app.listen({ host: '127.0.0.1', port: 0 });
  const context = { database, clock: time, random: randomBytes };
  await applyConfiguredRules(context, { ...noRules, goLive: true }, undefined);
  const folder = t.testdir();
  const command = (who: string, ...args: string[]) =>
    ran(...args, '--registry', registry, '--token-file', path.join(folder, who));
  writeFileSync(path.join(folder, 'bootstrap'), token);
  for (const name of ['olu', 'oma']) {
    const created = await command(
      'bootstrap',
      'administrators',
      'create',
      '--name',
      name,
      '--role',
      'operator',
      '--json',
    );
    const { id } = JSON.parse(created.out) as { id: string };
    const output = ['--output', path.join(folder, name)];
    await command('bootstrap', 'tokens', 'create', '--name', 'test', '--administrator', id, ...output);
  }
  const { id } = await createMerchant();
  t.match(await command('oma', 'approvals', 'list'), { status: 0, out: 'No requests.\n' });

  const waits = await command('olu', 'merchants', 'set', id, '--go-live', '--reason', 'contract 4711 signed');
  t.match(waits, { status: 1, out: '', err: /^Not changed yet: another administrator must approve the change before/ });
  const [, approval = ''] = /approvals approve (apr_\w+)/.exec(waits.err) ?? [];
  const listed = await command('oma', 'approvals', 'list');
  t.match(listed.out, /ID +STATUS +REQUESTED BY +CHANGE +OF +WOULD CHANGE +UNTIL\n/);
  t.match(listed.out, `${approval}  WAITING  olu           merchant.change  ${id}  goLive false → true`);
  t.match(await command('oma', 'approvals', 'show', approval), {
    status: 0,
    out: /would change +goLive false → true\nrequested by +olu at .*\nbecause +contract 4711 signed\n/,
  });
  t.match(await command('olu', 'approvals', 'approve', approval), { status: 1, err: /you made this request/ });
  t.match(await command('oma', 'approvals', 'approve', approval, '--reason', 'contract checked'), {
    status: 0,
    out: /status +APPROVED\n[^]*decided by +oma at .*\ndecision +contract checked\n[^]*In force on 2 of 2 gateways/,
  });
  t.match((await call('GET', `/merchants/${id}`)).body, { data: { goLive: true } });
  t.match(await command('oma', 'approvals', 'list', '--all'), { status: 0, out: /APPROVED/ });
  t.match(await command('oma', 'approvals', 'reject', approval), { status: 1, err: /The request is APPROVED: oma/ });
  t.match(await command('oma', 'approvals', 'show', 'a b'), {
    status: 2,
    err: /the id of an approval must consist of 1 to 64 letters.*\. To see the ids, run "merchant-gateway approvals list"/,
  });

  const created = await command('olu', 'merchants', 'create', '--name', 'Bea', '--go-live');
  const [, second = ''] = /approvals approve (apr_\w+)/.exec(created.err) ?? [];
  t.match(await command('oma', 'approvals', 'show', second), {
    out: /would change +name Bea\n +status ACTIVE\n +goLive true\n/,
  });
  t.match(await command('olu', 'approvals', 'reject', second), { status: 0, out: /status +REJECTED/ });
});
