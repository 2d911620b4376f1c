import { chmodSync, readdirSync, readFileSync, renameSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import t from 'tap';
import { loginCommand, logoutCommand, whoamiCommand } from '../../src/cli/admin/session/sign-in.js';
import { merchantsCommand } from '../../src/cli/admin/merchants.js';
import type { CommandIo } from '../../src/cli/command-io.js';
import { freePort } from '../adapters/redis-server.js';
import { openIdProvider } from '../registry/openid-provider.js';
import { registryFixture } from '../registry/registry-fixture.js';

t.test('a person signs in, works with the stored session, and signs out', async (t) => {
  const rules = [{ claim: 'groups', value: 'ops', roles: ['operator'] }];
  const groups = new Map([['ada', ['ops']]]);
  const provider = await openIdProvider(t, groups, rules);
  const { app, call, time } = await registryFixture(t, 'sqlite::memory:', { identityProvider: provider.client });
  time.advance(Date.now() - time.now());
  const registry = await app.listen({ host: '127.0.0.1', port: 0 });
  const directory = t.testdir();
  const env = { XDG_CONFIG_HOME: directory, MERCHANT_GATEWAY_REGISTRY: registry };
  let output = '';
  const add = (text: string): void => void (output += text);
  const io: CommandIo = { out: add, err: add };
  const make = {
    // The command pauses before it asks the registry for the session. In the pause, the person approves the sign-in.
    login: () =>
      loginCommand(io, env, async (milliseconds) => {
        const code = /enter the code ([^.\s]+)\./.exec(output)?.[1] ?? '';
        await provider.approve(code, 'ada');
        time.advance(milliseconds);
      }),
    logout: () => logoutCommand(io, env),
    whoami: () => whoamiCommand(io, env),
    merchants: () => merchantsCommand(io, env),
  };
  const run = async (name: keyof typeof make, ...args: string[]): Promise<string> => {
    output = '';
    const command = make[name]();
    for (const one of [command, ...command.commands]) one.exitOverride().configureOutput({ writeErr: add });
    await command.parseAsync(args, { from: 'user' }).catch((error: unknown) => {
      add(error instanceof Error ? error.message : '');
    });
    return output;
  };

  t.match(await run('merchants', 'list'), /a token is required\. .*, or sign in with "merchant-gateway login"$/);
  const nowhere = `http://127.0.0.1:${await freePort()}`;
  t.equal(
    await run('login', '--registry', nowhere),
    `Cannot reach the registry at ${nowhere}/: the connection was refused. Start the registry, or give the right address with --registry.`,
  );
  t.match(
    await run('login'),
    /Open http:\/\/localhost:\d+\/device in a browser[^]*Signed in as ada@example\.com \(operator\)\.\n$/,
  );
  const folder = `${directory}/merchant-gateway`;
  const file = `${folder}/${readdirSync(folder)[0] ?? ''}`;
  t.equal(statSync(file).mode & 0o777, 0o600);
  t.equal(statSync(folder).mode & 0o777, 0o700);
  const stored = JSON.parse(readFileSync(file, 'utf8')) as { token: string; registry: string; handle: string };
  t.match(stored, { registry: `${registry}/`, token: /^mga_/ });
  t.notOk(output.includes(stored.token), 'the token is not printed');
  t.match(await run('whoami'), /^name: ada@example\.com\nroles: operator\nproof: session:tok_/);
  t.equal(await run('merchants', 'list'), 'No merchants.\n');

  const configFile = (name: string, bootstrap: string): string => {
    writeFileSync(`${directory}/${name}`, `registry: { tokenFile: shared-token, bootstrap: ${bootstrap} }`);
    return `${directory}/${name}`;
  };
  const [off, on] = [configFile('off.yaml', 'off'), configFile('on.yaml', 'on')];
  t.match(await run('whoami', '--config', off), /^name: ada@/, 'the file of a refused token may be deleted');
  t.match(await run('whoami', '--config', on), /The token file .*cannot be read/);
  writeFileSync(`${directory}/shared-token`, 'a-former-token-0123456789-0123456789');
  t.match(await run('whoami', '--config', off), /^name: ada@/, 'a refused token is not sent');
  t.notMatch(await run('whoami', '--config', on), 'ada@');

  // The next command refreshes a session that ends within five minutes, if it was received at least ten seconds ago.
  const [expiresAt, receivedAt] = [60_000, -10_000].map((span) => new Date(Date.now() + span).toISOString());
  const soon = { ...stored, expiresAt, receivedAt };
  writeFileSync(file, JSON.stringify(soon));
  groups.set('ada', []);
  t.match(await run('merchants', 'list'), /Run "merchant-gateway login"\./, 'without a role the refresh is refused');
  groups.set('ada', ['ops']);
  t.match(await run('login'), /Signed in as ada/);

  writeFileSync(`${directory}/no-directory`, '');
  t.match(
    await run('login', '--token-file', `${directory}/no-directory/token`),
    /cannot be written: .*\/no-directory is not a directory\./,
  );

  chmodSync(file, 0o640);
  t.match(
    await run('merchants', 'list'),
    /must be a regular file that belongs to you and has mode 0600: sign in again/,
  );
  chmodSync(file, 0o600);
  renameSync(file, `${directory}/elsewhere`);
  symlinkSync(`${directory}/elsewhere`, file);
  t.match(await run('merchants', 'list'), /cannot be read: it is a symbolic link/);
  renameSync(`${directory}/elsewhere`, file);

  const { token } = JSON.parse(readFileSync(file, 'utf8')) as { token: string };
  t.equal(await run('logout'), 'Signed out.\n');
  t.throws(() => statSync(file));
  t.equal((await call('GET', '/me', { headers: { authorization: `Bearer ${token}` } })).status, 401);
  t.equal(await run('logout'), 'Not signed in.\n');
  t.match(await run('merchants', 'list'), /a token is required/);
  t.match(
    await run('merchants', 'list', '--config', off),
    /a token is required\. Give its file with --token-file, or set MERCHANT_GATEWAY_TOKEN to the token/,
  );
});
