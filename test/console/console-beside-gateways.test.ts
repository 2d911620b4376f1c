import { writeFile } from 'node:fs/promises';
import t from 'tap';
import { freePort, withoutRedis } from '../adapters/redis-server.js';
import { startDeployment } from '../deployment/deployment.js';
import { clientSecret, openIdProvider } from '../registry/openid-provider.js';
import { startBrowser, withoutBrowser } from './browser.js';

const gateways = 3;

t.test(
  'a person signs in at the provider, and what they change in the browser is in force on each gateway',
  { skip: withoutBrowser === false ? withoutRedis : withoutBrowser, timeout: 240_000 },
  async (t) => {
    const port = await freePort(); // the provider starts before the console, and must know the console's address
    const origin = `http://127.0.0.1:${port}`;
    const rules = [{ claim: 'groups', value: 'ops', roles: ['operator'] as ['operator'] }];
    const { issuer } = await openIdProvider(t, new Map([['ada', ['ops']]]), rules, [
      `${origin}/console/sign-in/callback`,
    ]);
    const secretFile = `${t.testdir()}/client-secret`;
    await writeFile(secretFile, clientSecret, { mode: 0o600 });
    const oidc = { issuer, clientId: 'registry', clientSecretFile: secretFile, scope: 'openid profile', roles: rules };
    const deployment = await startDeployment(t, {
      recordSecret: true,
      settings: {
        // Other tests can slow the machine down. This must not look like an outage of Redis.
        keyStore: { redis: { commandTimeoutMilliseconds: 5000 } },
        registry: { oidc, console: { listen: { port } } },
      },
    });
    await deployment.admin('POST', '/merchants', { name: 'Shop & Sons', status: 'ACTIVE', goLive: true });
    const running = await Promise.all(Array.from({ length: gateways }, () => deployment.startGateway()));
    const askAll = (key: string) => Promise.all(running.map(({ decide }) => decide(key)));

    const browser = await startBrowser(t, origin);
    // The form of the test's provider asks for a font from the internet.
    await browser.context.route(/^https:/, (route) => route.abort());
    const page = await browser.open();
    await page.goto(`${origin}/console/`);
    await page.getByRole('link', { name: 'Sign in with your organisation' }).click();
    await page.locator('input[name=login]').fill('ada');
    await page.locator('input[name=password]').fill('any');
    await page.locator('button[type=submit]').click();
    await page.locator('button[type=submit]', { hasText: 'Continue' }).click();
    await page.getByRole('heading', { name: 'Merchants' }).waitFor();
    await page.getByText('ada@example.com (operator)').waitFor();
    // Forgets the faults up to here: those of the provider's pages, and the 401 of the API before the sign-in.
    browser.faults.length = 0;

    await page.getByRole('link', { name: 'Shop & Sons' }).click();
    await page.getByRole('button', { name: 'Create key' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('textbox', { name: 'Label' }).fill('till 7');
    await dialog.getByRole('radio', { name: /^Live/ }).check();
    await dialog.getByRole('button', { name: 'Create key' }).click();
    const key = await page.getByRole('textbox', { name: 'Your key' }).inputValue();
    await page.getByText(`The change was in force on ${gateways} of ${gateways} gateways`).waitFor();
    await page.getByRole('button', { name: 'Copy key' }).click();
    await page.getByRole('button', { name: 'Done' }).click();
    t.same(await askAll(key), [200, 200, 200], 'each gateway accepts the new key');

    await page.getByRole('button', { name: 'Revoke till 7' }).click();
    const clickedAt = performance.now();
    await page.getByRole('button', { name: 'Revoke key', exact: true }).click();
    await page.getByText(`The change was in force on ${gateways} of ${gateways} gateways`).waitFor();
    t.comment(`in force on all, ${Math.round(performance.now() - clickedAt)} ms after the click`);
    t.same(await askAll(key), [401, 401, 401], 'no gateway accepts it any more');
    await page.getByRole('button', { name: 'Done' }).click();

    await page.getByRole('link', { name: 'Activity', exact: true }).click();
    await page
      .getByRole('row', { name: /key_inactive/ })
      .nth(gateways - 1)
      .waitFor({ timeout: 60_000 });
    await page.getByRole('link', { name: 'Gateways' }).click();
    await page.getByRole('row').nth(gateways).waitFor();
    await page.getByRole('link', { name: 'Events', exact: true }).click();
    await page.getByRole('row', { name: /ada@example\.com.*key\.revoked/ }).waitFor();
    t.same(browser.faults, []);
  },
);
