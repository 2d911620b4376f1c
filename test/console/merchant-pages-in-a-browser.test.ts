import t from 'tap';
import { accessibilityProblems, enter, requestAs, startBrowser, startProduct, withoutBrowser } from './browser.js';

t.test(
  'a merchant invites a member, tries a request and restricts addresses',
  { skip: withoutBrowser, timeout: 300_000 },
  async (t) => {
    const product = await startProduct(t);
    const browser = await startBrowser(t, product.origin);
    const page = await browser.open();
    const of = `${product.origin}/console/merchants/${product.merchantId}`;
    const button = (name: string | RegExp) => page.getByRole('button', { name }).first();
    const noProblems = async (where: string): Promise<void> => {
      t.same(await accessibilityProblems(page), [], `accessibility: ${where}`);
    };
    await enter(page, product.link);
    await page.getByRole('heading', { name: 'Merchants' }).waitFor();

    await t.test('the demo has requests to look at, by day and by hour, and refused ones', async (t) => {
      await page.goto(`${of}/activity`);
      await page
        .getByRole('row', { name: /key_inactive/ })
        .first()
        .waitFor();
      await page.getByRole('img', { name: 'Requests by day' }).waitFor();
      await page.getByLabel('Period').selectOption('hour');
      await page.getByRole('img', { name: 'Requests by hour' }).waitFor();
      t.ok((await page.locator('.chart rect.accepted').count()) >= 1);
      await noProblems('activity with a chart');
      await page.getByLabel('Code', { exact: true }).fill('rate_limited');
      await page.getByText('No refused request matches.').waitFor();
      t.match(page.url(), /code=rate_limited/, 'the filter is in the address');
      await button('Clear filters').click();
      const id = (await page.locator('table').last().locator('td code').first().textContent()) ?? '';
      await page.keyboard.press('Control+k');
      await page.getByLabel('Name, id or address').fill(id);
      await noProblems('search');
      await page.getByRole('link', { name: /Refused request/ }).click();
      await page.getByRole('dialog').waitFor({ state: 'detached' });
      await page.waitForURL(/requestId=/);
      const rows = page.getByRole('table', { name: 'Refused requests' }).getByRole('row');
      await rows.nth(1).waitFor();
      // The page keeps the former rows until the filtered ones are there.
      await rows.nth(2).waitFor({ state: 'detached' });
      t.equal(await rows.count(), 2);
    });

    await t.test('a text that looks like a key is not sent', async (t) => {
      const sent: string[] = [];
      page.on('request', (request) => sent.push(request.url()));
      await button(/^Search/).click();
      await page.getByLabel('Name, id or address').fill('svc_live_0123');
      await page.getByText('That looks like a key or token, so it was not sent.').waitFor();
      await page.getByLabel('Name, id or address').fill('Demo');
      await page.getByRole('link', { name: /Demo Merchant/ }).waitFor();
      t.ok(sent.some((url) => url.includes('/search?q=Demo')));
      t.notOk(sent.some((url) => url.includes('svc_live')));
      await button('Close').click();
    });

    await t.test('a first request appears by itself, with what became of it', async () => {
      await page.goto(`${of}/try`);
      await page.getByText(`curl --cacert`).waitFor();
      const { key } = await product.ask<{ key: string }>('POST', `/merchants/${product.merchantId}/keys`, {
        ...{ environment: 'live', label: 'first till' },
      });
      await new Promise((resolve) => setTimeout(resolve, 100));
      await requestAs(product, key, '/payouts');
      await page.getByText(/Accepted: a request from 127\.0\.0\.1 with the key “first till”/).waitFor();
    });

    await t.test('each entry of an allowlist says what it means', async (t) => {
      await page.goto(`${of}/allowlists`);
      await page.getByLabel('Accept requests only from this list').first().check();
      await button(/^Add 127\.0\.0\.1/).click();
      const field = page.getByRole('textbox', { name: 'IP addresses' });
      t.equal(await field.inputValue(), '127.0.0.1');
      await field.fill('8.8.4.0/24');
      await button('Add the addresses of accepted requests').click();
      await page.getByText('1 address added.').waitFor();
      t.equal(await field.inputValue(), '8.8.4.0/24\n127.0.0.1');
      t.equal(await page.getByText('Some requests came from further addresses').count(), 0);
      await button('Test with the requests of the last 30 days').click();
      await page.getByText('8.8.4.0/24: 256 addresses').waitFor();
      await page.getByText('127.0.0.1: 127.0.0.1 is not on the public internet').waitFor();
      await noProblems('allowlists with a verdict');
    });

    await t.test('a member is invited by a link, and sees this merchant only', async (t) => {
      await page.goto(`${of}/members`);
      await button('Invite a member').click();
      await page.getByLabel('Name', { exact: true }).fill('bea@example.com');
      await noProblems('invite');
      await button('Create the link').click();
      const link = await page.getByRole('textbox', { name: 'The link' }).inputValue();
      await noProblems('a link, shown once');
      await button('Copy link').click();
      await button('Done').click();
      await page.getByRole('row', { name: /bea@example\.com.*Viewer/ }).waitFor();

      const theirs = await startBrowser(t, product.origin);
      const member = await theirs.open();
      await enter(member, link);
      await member.getByRole('heading', { name: 'API keys' }).waitFor();
      t.equal(await member.getByRole('button', { name: 'Create key' }).count(), 0, 'a viewer creates no key');
      t.equal(await member.getByRole('link', { name: 'Merchants' }).count(), 0);

      await button('Change bea@example.com').click();
      await page.getByRole('radio', { name: /^Admin/ }).check();
      await button('Save').click();
      await page.getByRole('row', { name: /bea@example\.com.*Admin/ }).waitFor();
      await member.getByRole('button', { name: 'Create key' }).waitFor({ timeout: 70_000 });

      await button('Change bea@example.com').click();
      await button('Disable').click();
      await page.getByRole('row', { name: /bea@example\.com.*Disabled/ }).waitFor();
      await member.getByText('You were signed out').first().waitFor();
    });
    await t.test('gateways that have not confirmed a revocation are named', async (t) => {
      const { keyId } = await product.ask<{ keyId: string }>('POST', `/merchants/${product.merchantId}/keys`, {
        ...{ environment: 'live', label: 'lost till' },
      });
      await page.goto(`${of}/keys`);
      await page.getByLabel('Label').fill('lost');
      await page.getByRole('row').nth(2).waitFor({ state: 'detached' });
      const staleUntil = '2026-01-15T12:00:45.000Z';
      await page.route(`**/keys/${keyId}/revoke`, async (route) => {
        const response = await route.fetch();
        const body = (await response.json()) as { data: { propagation: object } };
        const pending = [
          { instanceId: 'gw-2', host: 'gw-2.example', staleUntil },
          { instanceId: 'gw-3', host: 'gw-3.example', staleUntil: null },
        ];
        body.data.propagation = { gateways: 3, confirmed: 1, pending, milliseconds: 2_000 };
        await route.fulfill({ response, json: body });
      });
      await button('Revoke lost till').click();
      await button('Revoke key').click();
      await page.getByText('1 of 3 gateways has confirmed the change.').waitFor();
      await page
        .getByText(/^gw-2\.example has not confirmed the change\. It can use the data from before the change until \d/)
        .waitFor();
      await page
        .getByText(
          'gw-3.example has not confirmed the change. It can use the data from before the change until it receives the change.',
        )
        .waitFor();
      await noProblems('pending gateways');
      t.equal((await product.ask<{ status: string }>('GET', `/keys/${keyId}`)).status, 'REVOKED');
    });

    await t.test('a page that a list no longer has leads to the last page', async (t) => {
      // This happens when somebody revokes the last key of the last page.
      await page.goto(`${of}/keys?status=ACTIVE&page=9`);
      await page.getByRole('row', { name: /first till/ }).waitFor();
      t.match(page.url(), /\?status=ACTIVE&page=1$/, 'with the same filter');
    });

    const addresses = page.getByRole('textbox', { name: 'IP addresses' });
    const save = page.getByRole('button', { name: 'Save', exact: true });
    const ofMerchant = `**/console/api/merchants/${product.merchantId}`;
    const stream = '**/console/api/stream';

    await t.test('what is typed while addresses are read or an allowlist is saved is kept', async (t) => {
      await page.goto(`${of}/allowlists`);
      await page.getByLabel('Accept requests only from this list').first().check();
      await button('Test with the requests of the last 30 days').click();
      await page.getByText(/^Of (\S+) accepted requests in the last 30 days, \1 would have been refused\./).waitFor();

      await page.route(/\/addresses\?/, async (route) => {
        const number = Number(new URL(route.request().url()).searchParams.get('page') ?? 1);
        if (number === 1) await addresses.fill('8.8.4.4');
        const meta = { total_records: 2, current_page: number, total_pages: 2 };
        const others = number === 1 ? [{ address: null, accepted: 1 }] : [];
        const data = [{ address: `8.8.8.${number}`, accepted: 1 }, ...others];
        await route.fulfill({ json: { success: true, message: 'Addresses retrieved', data, meta } });
      });
      await button('Add the addresses of accepted requests').click();
      await page.getByText('2 addresses added. Some requests came from further addresses').waitFor();
      t.equal(await addresses.inputValue(), '8.8.4.4\n8.8.8.1\n8.8.8.2');

      await page.route(ofMerchant, async (route) => {
        if (route.request().method() !== 'PATCH') return route.fallback();
        const response = await route.fetch();
        await addresses.fill('8.8.4.4, 9.9.9.9');
        await route.fulfill({ response });
      });
      await save.first().click();
      await page.getByText('Saved.', { exact: true }).waitFor();
      t.equal(await addresses.inputValue(), '8.8.4.4, 9.9.9.9');
      await page.unroute(ofMerchant);
    });

    await t.test('both allowlists are saved, one directly after the other', async () => {
      await page.getByLabel('Accept requests only from this list').last().check();
      await page.getByRole('textbox', { name: 'Origins' }).fill('shop.example.com');
      await save.first().click();
      await save.last().click();
      await page.getByText('Saved.', { exact: true }).nth(1).waitFor();
    });

    await t.test('a list that somebody else has changed is shown, and must be confirmed anew', async (t) => {
      // The test refuses the event stream, which would inform the page of the other person's change.
      await page.route(stream, (route) => route.fulfill({ status: 503 }));
      await page.goto(`${of}/allowlists`);
      await addresses.fill('8.0.0.0/7');
      await save.first().click();
      const confirmation = page.getByLabel(/I understand:/);
      await confirmation.check();
      await product.ask('PATCH', `/merchants/${product.merchantId}`, { ipAllowlist: ['9.9.9.9'] });
      await save.first().click();
      const conflict = page.getByText('Somebody else has changed this list in the meantime');
      await conflict.waitFor();
      await button('Show the current state').click();
      await conflict.waitFor({ state: 'detached' });
      t.equal(await addresses.inputValue(), '9.9.9.9');
      await addresses.fill('8.0.0.0/7');
      await save.first().click();
      await confirmation.waitFor();
      t.notOk(await confirmation.isChecked());

      // A person who saves again after a lost response sees no conflict with their own first attempt.
      await page.route(ofMerchant, async (route) => {
        if (route.request().method() !== 'PATCH') return route.fallback();
        await route.fetch();
        await route.fulfill({ status: 200, body: '{' });
      });
      await addresses.fill('9.9.9.10');
      await save.first().click();
      await page.getByText('We do not know whether your change was made.').waitFor();
      await page.unroute(ofMerchant);
      await save.first().click();
      await page.getByText('Saved.', { exact: true }).waitFor();
      await page.unroute(stream);
    });

    await t.test('a person without the permission for the stream does not request it', async (t) => {
      const other = await browser.open();
      await other.route('**/console/api/me', async (route) => {
        const response = await route.fetch();
        const body = (await response.json()) as { data: { permissions: string[] } };
        body.data.permissions = body.data.permissions.filter((permission) => permission !== 'events:read');
        await route.fulfill({ response, json: body });
      });
      const requested: string[] = [];
      other.on('request', (request) => requested.push(new URL(request.url()).pathname));
      await other.goto(`${of}/keys`);
      await other.getByRole('row').nth(1).waitFor();
      t.ok(requested.includes('/console/api/me'));
      t.notOk(requested.includes('/console/api/stream'));
      await other.close();
    });

    await t.test('changes appear again after an outage of the stream', async () => {
      // Refuses only once, because each refusal doubles the pause before the next attempt.
      await page.route(stream, (route) => route.fulfill({ status: 503 }), { times: 1 });
      const refused = page.waitForResponse(stream);
      await page.goto(`${of}/keys`);
      await refused;
      await page.getByRole('row').nth(1).waitFor();
      await product.ask('POST', `/merchants/${product.merchantId}/keys`, {
        ...{ environment: 'test', label: 'after the outage' },
      });
      await page.getByRole('row', { name: /after the outage/ }).waitFor({ timeout: 40_000 });
    });
    t.same(
      browser.faults.filter((fault) => !/status of (?:409|422|503)/.test(fault)),
      [],
    );
  },
);
