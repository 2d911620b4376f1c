import type { Page } from 'playwright-core';
import t, { type Test } from 'tap';
import { enter, holdRequests, requestAs, startBrowser, startProduct, withoutBrowser } from './browser.js';

const mostSteps = 120;

/** Presses Tab until the element with this name has the focus. */
async function tabTo(t: Test, page: Page, name: RegExp): Promise<void> {
  for (let step = 0; step < mostSteps; step += 1) {
    await page.keyboard.press('Tab');
    const focused = await page.evaluate<string>(`(() => {
      const { activeElement: one } = document;
      if (one === document.body) return '';
      const label = one.labels?.[0]?.textContent ?? '';
      return (one.getAttribute('aria-label') ?? '') + ' ' + label + ' ' + one.textContent;
    })()`);
    if (name.test(focused)) {
      const isVisible = await page.evaluate<boolean>(
        `document.activeElement.matches(':focus-visible') && getComputedStyle(document.activeElement).outlineStyle !== 'none'`,
      );
      t.ok(isVisible, `the focus is visible: ${String(name)}`);
      return;
    }
  }
  throw new Error(`Tab never reaches ${String(name)}`);
}

t.test('the daily tasks need no mouse', { skip: withoutBrowser, timeout: 180_000 }, async (t) => {
  const product = await startProduct(t);
  const browser = await startBrowser(t, product.origin);
  const page = await browser.open();
  const press = (key: string): Promise<void> => page.keyboard.press(key);
  await enter(page, product.link);
  await page.getByRole('heading', { name: 'Merchants' }).waitFor();

  await t.test('create a key', async (t) => {
    await page.locator('th a').first().waitFor();
    await tabTo(t, page, /^ {2}Demo|^ {2}\S.*Merchant|^ {2}\S.*(?:Store|Shop)/);
    await press('Enter');
    await page.getByRole('heading', { name: 'API keys' }).waitFor();
    await tabTo(t, page, /Create key/);
    await press('Enter');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.type('by keyboard');
    await press('Enter');
    await page.getByRole('textbox', { name: 'Your key' }).waitFor();
    t.equal(await page.evaluate('document.activeElement.textContent'), 'Copy key');
    await press('Enter');
    await page.getByText('Copied', { exact: true }).waitFor();
    await press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    t.match(await page.evaluate('document.activeElement.textContent'), /Create key/, 'the focus returns');
  });

  await t.test('reset it with a grace period', async (t) => {
    await page.getByRole('row', { name: /by keyboard/ }).waitFor();
    await tabTo(t, page, /^Reset by keyboard/);
    await press('Enter');
    await tabTo(t, page, /24 hours/);
    await press('ArrowUp');
    t.ok(await page.getByRole('radio', { name: '1 hour' }).isChecked());
    await tabTo(t, page, /Reset key/);
    await press('Enter');
    await page.getByRole('textbox', { name: 'Your key' }).waitFor();
    await press('Enter');
    await page.getByText('Copied', { exact: true }).waitFor();
    await press('Escape');
    await page.getByText(/^Ends in/).waitFor();
  });

  await t.test('revoke it', async (t) => {
    await tabTo(t, page, /^Revoke by keyboard/);
    await press('Enter');
    await tabTo(t, page, /Revoke key$/);
    const release = await holdRequests(page, '**/revoke');
    await press('Enter');
    await page.getByText('Sending…').waitFor();
    t.equal(await page.evaluate('document.activeElement.tagName'), 'DIALOG', 'the focus stays in the dialog');
    await press('Escape');
    await press('Escape');
    await release();
    await page.getByText(/The change was in force on|No gateway is running/).waitFor();
    await press('Enter');
    await page.getByRole('row', { name: /by keyboard.*Revoked/ }).waitFor();
  });

  await t.test('allow an address', async (t) => {
    await tabTo(t, page, /Allowlists/);
    await press('Enter');
    await page.getByRole('heading', { name: 'Allowlists' }).waitFor();
    await tabTo(t, page, /Accept requests only from this list/);
    await press('Space');
    await tabTo(t, page, /IP addresses/);
    await page.keyboard.type('8.8.4.0/24');
    await tabTo(t, page, /Save/);
    await press('Enter');
    await page.getByText('Saved.').waitFor();
    t.same((await product.ask<{ ipAllowlist: string[] }>('GET', `/merchants/${product.merchantId}`)).ipAllowlist, [
      '8.8.4.0/24',
    ]);
  });

  await t.test('find why a call failed, and who changed it', async (t) => {
    const { key } = await product.ask<{ key: string }>('POST', `/merchants/${product.merchantId}/keys`, {
      environment: 'test',
    });
    await requestAs(product, key, '/transactions');
    await tabTo(t, page, /Activity/);
    await press('Enter');
    await page.getByRole('row', { name: /test_key_in_live.*sandbox/ }).waitFor();
    await tabTo(t, page, /^ {2}Events/);
    await press('Enter');
    await page.getByRole('heading', { name: 'Events' }).waitFor();
    await page.getByText('merchant.changed').first().waitFor();
    const change = page.getByText('8.8.4.0/24').first();
    // Reads of data are events too, and are listed above the change.
    for (let row = 0; row < 5 && !(await change.isVisible()); row += 1) {
      await tabTo(t, page, /Before and after/);
      await press('Enter');
    }
    t.ok(await change.isVisible(), 'the event shows the change');
  });
  t.same(browser.faults, []);
});
