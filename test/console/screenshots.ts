import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import t from 'tap';
import { enter, requestAs, startBrowser, startProduct } from './browser.js';

// Makes the screenshots in docs/images: npm run screenshots.

const directory = path.resolve('docs/images');
const [wide, narrow] = [
  { width: 1200, height: 620 },
  { width: 360, height: 640 },
] as const;

t.test('screenshots of the console', { timeout: 120_000 }, async (t) => {
  await mkdir(directory, { recursive: true });
  const product = await startProduct(t);
  const of = `/merchants/${product.merchantId}`;
  const labels = ['till 7', 'online shop', 'nightly payouts'];
  for (const [index, label] of labels.entries()) {
    const body = { environment: 'live', label, expiresIn: index === 2 ? '90d' : undefined };
    const { key } = await product.ask<{ key: string }>('POST', `${of}/keys`, body);
    for (let sent = 0; sent < 20 * (index + 1); sent += 1) await requestAs(product, key, '/payouts');
  }
  const browser = await startBrowser(t, product.origin);
  const page = await browser.open();
  await enter(page, product.link);
  await page.getByRole('heading', { name: 'Merchants' }).waitFor();
  const shoot = async (name: string, at: string, colorScheme: 'light' | 'dark', size: typeof wide | typeof narrow) => {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize(size);
    await page.goto(`${product.origin}/console${at}`);
    await page.getByRole('row').nth(1).waitFor();
    await page.screenshot({ path: path.join(directory, `${name}.png`) });
  };
  await shoot('console-keys', `${of}/keys`, 'light', wide);
  await shoot('console-activity', `${of}/activity`, 'dark', wide);
  await shoot('console-narrow', `${of}/keys`, 'light', narrow);
});
