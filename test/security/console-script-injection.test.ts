import t from 'tap';
import { enter, requestAs, startBrowser, startProduct, withoutBrowser } from '../console/browser.js';

// Merchants and callers can set texts that pages of the console show. On no page may such a text run code, load
// anything or look like another text.

const tags = ['script', 'img', 'svg', 'iframe', 'a', 'math', 'style', 'base', 'form', 'object'];
const frames: readonly ((tag: string) => string)[] = [
  (tag) => `<${tag} src=x onerror=ranIt()>`,
  (tag) => `"><${tag} onload=ranIt()>`,
  (tag) => `'><${tag} href=javascript:ranIt()>x</${tag}>`,
  (tag) => `</${tag}><script>ranIt()</script>`,
  (tag) => `{{constructor.constructor('ranIt()')()}}<${tag}>`,
  (tag) => `\${ranIt()}<${tag} autofocus onfocus=ranIt()>`,
  (tag) => `javascript:ranIt()//<${tag}`,
  (tag) => `<!--<${tag} title="--><img src=x onerror=ranIt()>">`,
  (tag) => `&lt;${tag} onerror=ranIt()&gt;<${tag}/onerror=ranIt()>`,
  (tag) => `<${tag}\u00a0style=background:url(//evil.example/x)>`,
];
const bidirectional = [
  '\u202a',
  '\u202b',
  '\u202c',
  '\u202d',
  '\u202e',
  '\u2066',
  '\u2067',
  '\u2068',
  '\u2069',
  '\u200e',
];
const invisible = [
  '\u200b',
  '\u200c',
  '\u200d',
  '\u2060',
  '\ufeff',
  '\u00ad',
  '\u061c',
  '\u180e',
  '\u{e0041}',
  '\u200f',
  '\u3164',
  '\u2800',
  '\u034f',
  '\ufe0f',
];
const payloads = [
  ...tags.flatMap((tag) => frames.map((frame) => frame(tag))),
  ...[...bidirectional, ...invisible].flatMap((one) => [
    `${one}live`,
    `li${one}ve`,
    `live${one}`,
    `${one}e\u0301vil`,
    `a${one}${one}b`,
  ]),
].map((payload) => payload.slice(0, 90));

t.test(
  '220 payloads in names, labels, paths and reasons run nothing and hide nothing',
  { skip: withoutBrowser, timeout: 240_000 },
  async (t) => {
    t.equal(payloads.length, 220);
    const product = await startProduct(t);
    const merchants: string[] = [];
    let secret = '';
    for (const [index, name] of payloads.entries()) {
      if (index % 10 === 0)
        merchants.push((await product.ask<{ id: string }>('POST', '/merchants', { name, status: 'ACTIVE' })).id);
      const { key } = await product.ask<{ key: string }>('POST', `/merchants/${merchants.at(-1) ?? ''}/keys`, {
        environment: 'test',
        label: name,
      });
      if (index === 0) secret = key;
    }
    const named = [...payloads.slice(0, 5), ...payloads.slice(100, 140)].map((payload) => payload.slice(0, 60));
    for (const name of named) await product.ask('POST', '/tokens', { name });
    // A caller chooses the path and the query of a refused request.
    for (const payload of payloads.slice(0, 20))
      await requestAs(product, secret, `/transactions/${encodeURIComponent(payload)}`, encodeURI(payload));

    const browser = await startBrowser(t, product.origin);
    await browser.context.exposeFunction('ranIt', () => browser.faults.push('a payload ran'));
    const page = await browser.open();
    await enter(page, product.link);
    await page.getByRole('heading', { name: 'Merchants' }).waitFor();
    await page.locator('th bdi').nth(19).waitFor();
    const texts = async (selector: string): Promise<string[]> => page.locator(selector).allTextContents();
    t.ok((await texts('th bdi')).length >= 20, 'the names are shown');
    const shown: string[] = [];
    for (const id of merchants) {
      await page.goto(`${product.origin}/console/merchants/${id}/keys`);
      await page.getByRole('row').nth(10).waitFor();
      shown.push(...(await texts('tbody th bdi')));
      await page
        .getByRole('button', { name: /^Revoke/ })
        .first()
        .click();
      const title = (await page.locator('dialog h2').textContent()) ?? '';
      t.ok(
        payloads.some((payload) => title.includes(escaped(payload))) && title === escaped(title),
        'the title of a dialog shows invisible characters as codes too',
      );
      await page.getByRole('button', { name: 'Keep the key' }).click();
    }
    await page.goto(`${product.origin}/console/merchants/${merchants[0] ?? ''}/activity`);
    await page
      .getByRole('row', { name: /test_key_in_live/ })
      .nth(19)
      .waitFor();

    const longWord = 'x'.repeat(900);
    const { key: other } = await product.ask<{ key: string }>('POST', `/merchants/${merchants[1] ?? ''}/keys`, {
      environment: 'test',
    });
    await requestAs(product, other, `/transactions/${longWord}`);
    await page.goto(`${product.origin}/console/merchants/${merchants[1] ?? ''}/activity`);
    await page.getByText(longWord).waitFor();
    const widest = await page.evaluate<number>(
      `Math.max(...[...document.querySelectorAll('table')].map(({ offsetWidth }) => offsetWidth))`,
    );
    t.ok(widest < 4_000, `a long word does not move other columns away: ${widest} pixels`);
    await page.goto(`${product.origin}/console/events`);
    await page.getByRole('row').nth(20).waitFor();
    await page.goto(`${product.origin}/console/tokens`);
    await page.getByRole('row').nth(named.length).waitFor();
    const tokens = await texts('tbody th bdi');
    for (const name of named) t.ok(tokens.includes(escaped(name)), 'the name of a token is shown as it is');
    await page.getByRole('button', { name: /^Search/ }).click();
    await page.getByLabel('Name, id or address').fill(payloads[0] ?? '');
    await page.locator('.found bdi').first().waitFor();
    t.ok((await texts('.found bdi')).includes(escaped(payloads[0] ?? '')), 'a search shows names as they are');
    t.same(
      shown.toSorted(),
      payloads.map(escaped).toSorted(),
      'each label is shown as it is, with invisible characters as codes',
    );
    t.same(browser.faults, []);
  },
);

function escaped(text: string): string {
  return text.replaceAll(
    /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]/gu,
    (one) => `\\u${(one.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}`,
  );
}
