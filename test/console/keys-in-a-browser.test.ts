import t from 'tap';
import { accessibilityProblems, enter, holdRequests, startBrowser, startProduct, withoutBrowser } from './browser.js';

t.test('a person manages keys in a browser', { skip: withoutBrowser, timeout: 240_000 }, async (t) => {
  const product = await startProduct(t);
  const browser = await startBrowser(t, product.origin);
  const page = await browser.open();
  let clicks = 0;
  const click = async (name: string | RegExp, role: 'button' | 'link' | 'radio' = 'button'): Promise<void> => {
    clicks += 1;
    await page.getByRole(role, { name }).first().click();
  };
  const noProblems = async (where: string): Promise<void> => {
    t.same(await accessibilityProblems(page), [], `accessibility: ${where}`);
  };

  await enter(page, product.link);
  clicks += 1;
  await page.getByRole('heading', { name: 'Merchants' }).waitFor();
  t.notMatch(page.url(), /#/, 'the address bar does not keep the token');
  await noProblems('merchants');

  await page.locator('th a').first().click();
  clicks += 1;
  await page.getByRole('heading', { name: 'API keys' }).waitFor();
  await noProblems('keys');

  await click('Create key');
  await page.getByRole('textbox', { name: 'Label' }).fill('till 7');
  await noProblems('create a key');
  clicks += 1;
  await page.getByRole('dialog').getByRole('button', { name: 'Create key' }).click();
  const field = page.getByRole('textbox', { name: 'Your key' });
  await field.waitFor();
  const key = await field.inputValue();
  t.match(key, /^svc_test_\w+$/);
  await noProblems('a key, shown once');

  // Escape does not close the dialog but shows a warning, because the key would be lost.
  await page.keyboard.press('Escape');
  await page.getByText('You have not copied the key').waitFor();
  await page.getByRole('button', { name: 'Go back' }).click();
  await click('Copy key');
  await page.getByText('Copied', { exact: true }).waitFor();
  t.equal(await page.evaluate('navigator.clipboard.readText()'), key);
  t.ok(clicks <= 6, `${clicks} clicks to the first key, at most 6`);
  await click('Done');

  await t.test('nothing keeps the key after its dialog has closed', async (t) => {
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    const kept = await page.evaluate<string[]>(`[
      document.documentElement.outerHTML,
      JSON.stringify({ ...localStorage }),
      JSON.stringify({ ...sessionStorage }),
      JSON.stringify(history.state),
      location.href,
    ]`);
    for (const text of kept) t.notOk(text.includes(key));
    // The list reloads after the dialog has closed. The snapshot must contain a label from the list.
    await page.getByRole('row', { name: /till 7/ }).waitFor();
    const session = await browser.context.newCDPSession(page);
    await session.send('HeapProfiler.collectGarbage');
    let snapshot = '';
    session.on('HeapProfiler.addHeapSnapshotChunk', ({ chunk }) => (snapshot += chunk));
    await session.send('HeapProfiler.takeHeapSnapshot', { reportProgress: false });
    t.ok(snapshot.includes('till 7'), 'the snapshot has the texts of the page');
    t.notOk(snapshot.includes(key), 'the memory of the page does not have the key');
  });

  await t.test('the key is in the list, and revoking it says where that is in force', async (t) => {
    const row = page.getByRole('row', { name: /till 7/ });
    await row.getByText('Active').waitFor();
    await row.getByRole('button', { name: 'Revoke till 7' }).click();
    t.equal(await page.evaluate('document.activeElement.textContent'), 'Keep the key', 'the safe button has the focus');
    await noProblems('revoke');
    // Responds like a registry with `reasonFor: [keys:revoke]`.
    await page.route('**/revoke', (route) => {
      if (route.request().headers()['x-reason'] !== undefined) return route.fallback();
      const json = { success: false, message: 'A reason is required', data: { code: 'reason_required' } };
      return route.fulfill({ status: 400, json });
    });
    await page.getByRole('button', { name: 'Revoke key', exact: true }).click();
    await page.getByRole('textbox', { name: 'Reason' }).waitFor();
    t.equal(await page.evaluate('document.activeElement.labels[0].textContent'), 'Reason', 'the field has the focus');
    await noProblems('revoke with a reason');
    const reason = 'Till nº 7 – lost';
    await page.keyboard.type(reason);
    await page.keyboard.press('Enter');
    await page
      .getByText(/The change was in force on \d+ of \d+ gateways? after \d+ ms|No gateway is running/)
      .waitFor();
    // The list reloads behind the dialog, and loses the button that opened the dialog.
    await page.locator('tr', { hasText: 'till 7' }).getByText('Revoked').waitFor();
    await click('Done');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    t.equal(await page.evaluate('document.activeElement.id'), 'content', 'the focus stays on the page');
    await row.getByText('Revoked').waitFor();
    const [event] = await product.ask<{ reason: string }[]>('GET', '/events?action=key.revoked');
    t.equal(event?.reason, reason, 'the event has the reason');
  });

  await t.test('a change that somebody else makes appears by itself', async () => {
    product.run(
      'keys',
      'create',
      '--merchant',
      product.merchantId,
      '--environment',
      'test',
      '--label',
      'from elsewhere',
    );
    await page.getByRole('row', { name: /from elsewhere/ }).waitFor();
  });

  const dialog = page.getByRole('dialog');
  const reset = async (): Promise<void> => {
    await page.getByRole('button', { name: 'Reset from elsewhere' }).first().click();
    await dialog.getByRole('button', { name: 'Reset key' }).click();
  };

  await t.test('a dialog stays open until its change has a response', async (t) => {
    const release = await holdRequests(page, '**/reset');
    await reset();
    await dialog.getByText('Sending…').waitFor();
    t.ok(await dialog.getByRole('button', { name: 'Cancel' }).isDisabled());
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    await release();
    await page.getByRole('textbox', { name: 'Your key' }).waitFor();
    await click('Copy key');
    await page.getByText('Copied', { exact: true }).waitFor();
    await click('Done');
  });

  await t.test('a change without a complete response may have been made', async () => {
    const unclear = dialog.getByText('We do not know whether your change was made.');
    await page.route('**/reset', (route) => route.fulfill({ status: 201, body: '{ "success": true, "da' }));
    await reset();
    await unclear.waitFor();
    await click('Cancel');
    await page.unroute('**/reset');

    // Now the request gets no response. The test shortens the page's timeout from half a minute to 200 ms.
    await page.evaluate(`(() => {
      const timeout = AbortSignal.timeout.bind(AbortSignal);
      AbortSignal.timeout = () => timeout(200);
    })()`);
    await page.route('**/reset', () => undefined);
    await reset();
    await unclear.waitFor();
    await click('Cancel');
    await page.unroute('**/reset');
  });

  await t.test('every page is accessible and fits into 320 pixels', async (t) => {
    for (const [path, heading] of [
      [`merchants/${product.merchantId}/allowlists`, 'Allowlists'],
      [`merchants/${product.merchantId}/activity`, 'Activity'],
      [`merchants/${product.merchantId}/try`, 'Try it'],
      [`merchants/${product.merchantId}/members`, 'Members'],
      ['administrators', 'Administrators'],
      ['tokens', 'Your tokens'],
      ['approvals', 'Approvals'],
      ['unusual', 'Unusual use'],
      ['gateways', 'Gateways'],
      ['events', 'Events'],
      ['sessions', 'Your sessions'],
      ['merchants', 'Merchants'],
      [`merchants/${product.merchantId}/keys`, 'API keys'],
    ] as const) {
      await page.setViewportSize({ width: 320, height: 640 });
      await page.goto(`${product.origin}/console/${path}`);
      await page.getByRole('heading', { name: heading, level: 1 }).waitFor();
      t.equal(await page.title(), `${heading} – merchant-gateway`);
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme });
        await noProblems(`${path}, ${colorScheme}`);
        const width = await page.evaluate<number>('document.documentElement.scrollWidth');
        t.ok(width <= 320, `${path} is ${width} pixels wide`);
      }
    }
  });

  await t.test('a second tab finds out that the session has ended, and keeps what was typed', async (t) => {
    await page.setViewportSize({ width: 1200, height: 800 });
    await page.getByRole('button', { name: 'Create key' }).click();
    await page.getByRole('textbox', { name: 'Label' }).fill('not lost');
    const other = await browser.open();
    await other.goto(`${product.origin}/console/`);
    await other.getByRole('button', { name: 'Sign out' }).click();
    await other.getByRole('heading', { name: 'Sign in' }).waitFor();
    await page.getByText('You were signed out').first().waitFor({ state: 'attached', timeout: 70_000 });
    t.equal(await page.getByRole('textbox', { name: 'Label' }).inputValue(), 'not lost');
    await dialog.getByRole('button', { name: 'Create key' }).click();
    const link = dialog.getByRole('link', { name: 'Sign in in a new tab' });
    const [tab] = await Promise.all([browser.context.waitForEvent('page'), link.click()]);
    await tab.getByRole('heading', { name: 'Sign in' }).waitFor();
    t.equal(await page.getByRole('textbox', { name: 'Label' }).inputValue(), 'not lost');
  });

  t.same(
    browser.faults.filter((fault) => !/status of 40[01]/.test(fault)),
    [],
    'no violation of the CSP, no error and no request to another origin',
  );
});
