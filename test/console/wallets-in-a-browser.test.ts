import t from 'tap';
import { accessibilityProblems, enter, holdRequests, startBrowser, startProduct, withoutBrowser } from './browser.js';

t.test('a person funds a wallet in a browser', { skip: withoutBrowser, timeout: 180_000 }, async (t) => {
  const product = await startProduct(t, 'approvals: { goLive: false, owners: false, fundingAbove: { NGN: 500000 } }');
  const browser = await startBrowser(t, product.origin);
  const page = await browser.open();
  const noProblems = async (where: string): Promise<void> => {
    t.same(await accessibilityProblems(page), [], `accessibility: ${where}`);
  };
  const dialog = page.getByRole('dialog');
  const submit = () => dialog.getByRole('button', { name: 'Fund wallet' }).click();
  const funding = /\/api\/wallets\/[^/]+\/fund/;
  const unclear = dialog.getByText('We do not know whether the money was moved');

  await enter(page, product.link);
  await page.getByRole('link', { name: 'Wallets' }).click();
  await page.getByRole('heading', { name: 'Wallets', level: 1 }).waitFor();
  await page.getByRole('searchbox', { name: 'Merchant id' }).fill('m_unknown');
  await page.getByText('No wallets.').waitFor();
  await page.getByRole('button', { name: 'Clear filters' }).click();
  await page.locator('th a').first().waitFor();
  await noProblems('wallets');
  await page.locator('th a').first().click();
  await page.getByRole('heading', { name: 'Wallet', level: 1 }).waitFor();
  await page.getByRole('heading', { name: 'Entries' }).waitFor();
  await noProblems('one wallet');

  await page.getByRole('button', { name: 'Fund wallet' }).click();
  const reference = await dialog.getByLabel('Reference').inputValue();
  t.match(reference, /^console-[0-9a-f-]{36}$/);
  await dialog.getByLabel('Amount').fill('12.345');
  await submit();
  await dialog.getByText('no more decimals than the currency has').waitFor();
  await dialog.getByRole('alert').filter({ hasText: 'Enter a reason.' }).waitFor();
  await noProblems('problems of fields');
  await dialog.getByLabel('Amount').fill('1234.56');
  await dialog.getByText(/NGN.1,234\.56 will move/).waitFor();
  await dialog.getByLabel('Reason').fill('A deposit');

  await t.test('after a lost response and another page, the same reference moves the money once', async () => {
    await page.route(funding, async (route) => {
      await route.fetch();
      await route.abort();
    });
    const release = await holdRequests(page, funding);
    await submit();
    await dialog.getByText('Sending…').waitFor();
    t.ok(await dialog.getByRole('button', { name: 'Cancel' }).isDisabled(), 'the dialog stays open until then');
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    await release();
    await unclear.waitFor();
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    await page.unroute(funding);
    await page.getByRole('link', { name: 'Wallets' }).click();
    await page.getByRole('heading', { name: 'Wallets', level: 1 }).waitFor();
    await page.goBack();
    await page.getByRole('button', { name: 'Fund wallet' }).click();
    t.equal(await dialog.getByLabel('Reference').inputValue(), reference, 'the reference is kept');
    t.equal(await dialog.getByLabel('Amount').inputValue(), '1234.56', 'and so is what was typed');
    t.equal(await dialog.getByLabel('Reason').inputValue(), 'A deposit');
    await submit();
    await dialog.getByText('An earlier request with this reference had already moved the money').waitFor();
    await noProblems('funded');
    await dialog.getByRole('button', { name: 'Done' }).click();
    await page.getByRole('cell', { name: reference }).waitFor();
    t.equal(await page.getByRole('cell', { name: reference }).count(), 1);
  });

  await t.test('above the limit, another administrator approves', async (t) => {
    await page.getByRole('button', { name: 'Fund wallet' }).click();
    const next = await dialog.getByLabel('Reference').inputValue();
    t.not(next, reference, 'another funding has another reference');
    await dialog.getByLabel('Amount').fill('5000.01');
    await dialog.getByLabel('Reason').fill('Large');
    await submit();
    await dialog.getByRole('button', { name: 'Request approval' }).click();
    await dialog.getByText('Another administrator has 24 hours to approve').waitFor();
    await dialog.getByRole('button', { name: 'Done' }).click();
    const [{ id } = { id: '' }] = await product.ask<{ id: string }[]>('GET', '/approvals?status=WAITING');
    await product.askAsTreasurer('POST', `/approvals/${id}/approve`);

    // Two fundings get no response: a small one, and the approved one. The page keeps the form of each for a retry.
    await page.getByRole('button', { name: 'Fund as approved' }).waitFor();
    await page.route(funding, (route) => route.abort());
    await page.getByRole('button', { name: 'Fund wallet' }).click();
    const small = await dialog.getByLabel('Reference').inputValue();
    await dialog.getByLabel('Amount').fill('10');
    await dialog.getByLabel('Reason').fill('Small');
    await submit();
    await unclear.waitFor();
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    await page.getByRole('button', { name: 'Fund as approved' }).click();
    t.equal(await dialog.getByLabel('Amount').inputValue(), '5000.01');
    t.equal(await dialog.getByLabel('Reference').inputValue(), next);
    await dialog.getByLabel('Reason').fill('Large and urgent');
    await submit();
    await unclear.waitFor();
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    await page.unroute(funding);
    await page.getByRole('button', { name: 'Fund wallet' }).click();
    t.equal(await dialog.getByLabel('Reference').inputValue(), small, 'the reference of the own funding is kept');
    t.equal(await dialog.getByLabel('Amount').inputValue(), '10');
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    await page.getByRole('button', { name: 'Fund as approved' }).click();
    t.equal(await dialog.getByLabel('Reason').inputValue(), 'Large and urgent');
    await submit();
    await dialog.getByText(/The wallet received NGN.5,000\.01/).waitFor();
    await dialog.getByRole('button', { name: 'Done' }).click();
    await page.getByRole('cell', { name: next }).waitFor();
    await page.getByRole('button', { name: 'Fund as approved' }).waitFor({ state: 'detached' });
  });

  await t.test('a funding that was carried out is not offered again, whatever was moved since', async (t) => {
    const other = await page.evaluate<string>(`(async () => {
      const at = location.pathname.replace('/console/', '/console/api/');
      const ask = async (to, body) => {
        const headers = { 'content-type': 'application/json' };
        const response = await fetch(to, body && { method: 'POST', headers, body: JSON.stringify(body) });
        const { success, message, data } = await response.json();
        if (!success) throw new Error(message);
        return data;
      };
      const { id: walletId, currency, environment } = await ask(at);
      const order = { currency, environment, amount: 1, reason: 'Later' };
      for (let count = 0; count < 20; count += 1) await ask(at + '/fund', { ...order, reference: 'later-' + count });
      const funding = { walletId, currency, environment, amount: 500002, reference: 'other' };
      return (await ask('/console/api/approvals', funding)).id;
    })()`);
    await product.askAsTreasurer('POST', `/approvals/${other}/approve`);
    const offered = page.getByRole('button', { name: 'Fund as approved' });
    const offersOther = async (about: string): Promise<void> => {
      await page.reload();
      await page.getByText('reference other.').waitFor();
      t.equal(await offered.count(), 1, about);
    };
    await offersOther('only the other funding');

    const faults = browser.faults.length;
    const search = /\/entries\?reference=/;
    const refusal = {
      success: false,
      message: 'reference is unknown',
      data: { code: 'validation_failed', errors: [] },
    };
    await page.route(search, (route) => route.fulfill({ status: 422, json: refusal }));
    await offersOther('nor beside services of the previous release');
    await page.unroute(search);
    await offersOther('after the upgrade');
    t.same(
      browser.faults.splice(faults).filter((fault) => !fault.includes('status of 422')),
      [],
    );
  });

  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width: 320, height: 640 });
    await noProblems(`narrow, ${colorScheme}`);
    t.ok((await page.evaluate<number>('document.documentElement.scrollWidth')) <= 320);
  }
  t.same(
    browser.faults.filter((fault) => !/status of 403|ERR_FAILED/.test(fault)),
    [],
    'no violation of the CSP, no error and no request to another origin',
  );
});
