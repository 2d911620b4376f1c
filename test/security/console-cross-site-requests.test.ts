import t from 'tap';
import { enter, startBrowser, startProduct, withoutBrowser } from '../console/browser.js';
import { consoleFixture, origin, sessionIn } from '../console/console-fixture.js';

// A browser sends the session cookie with requests that other pages cause. A page of another port of the same host is
// same-site, so SameSite=Strict does not withhold the cookie.

t.test('a change that no page of the console sent is rejected, with an event', async (t) => {
  const { ask, app, createPerson, signIn, createMerchant, eventsOf, call } = await consoleFixture(t, 'sqlite::memory:');
  const { token } = await createPerson('olu', ['owner']);
  const session = await signIn(token);
  const { id } = await createMerchant();
  const create = (headers: Record<string, string | undefined>) =>
    ask('POST', `/console/api/merchants/${id}/keys`, { session, body: { environment: 'test' }, headers });
  for (const [what, headers] of Object.entries({
    'another site': { origin: 'https://evil.example', 'sec-fetch-site': 'cross-site' },
    'another port of the same host': { origin: 'https://console.example.com:8443', 'sec-fetch-site': 'same-site' },
    'another scheme': { origin: origin.replace('https', 'http'), 'sec-fetch-site': 'same-site' },
    'a sandboxed frame': { origin: 'null', 'sec-fetch-site': 'cross-site' },
    'a form without an origin': { origin: undefined, 'sec-fetch-site': 'same-origin' },
    'the right origin in the wrong context': { origin, 'sec-fetch-site': 'same-site' },
    'neither header': { origin: undefined, 'sec-fetch-site': undefined },
  })) {
    t.match(await create(headers), { status: 403, body: { data: { code: 'foreign_origin' } } }, what);
  }
  t.same((await call<unknown[]>('GET', `/merchants/${id}/keys`)).body.data, []);
  t.equal((await create({})).status, 201, 'a page of the console creates a key');
  t.equal((await ask('GET', '/console/api/me', { session, headers: { 'sec-fetch-site': 'same-site' } })).status, 403);
  await app.close();
  t.match(await eventsOf('sign-in.failed'), [{ after: { cause: 'foreign_origin', refusals: 8 } }]);
});

t.test('a form of another site signs nobody in: links are used by requests of the page only', async (t) => {
  const { ask, createPerson, createLink } = await consoleFixture(t, 'sqlite::memory:');
  const { token } = await createPerson('mallory', ['support']);
  const secret = await createLink(token);
  const forged = await ask('POST', '/console/api/enter', {
    body: { token: secret },
    headers: { origin: 'https://evil.example', 'sec-fetch-site': 'cross-site' },
  });
  t.equal(forged.status, 403);
  t.equal(sessionIn(forged), '', 'otherwise a victim would work in the account of the attacker');
  t.equal((await ask('GET', '/console/api/enter')).status, 401, 'and a GET uses no link up');
});

t.test(
  'a link that a page of another site opens signs nobody in before a click',
  { skip: withoutBrowser },
  async (t) => {
    const product = await startProduct(t);
    const page = await (await startBrowser(t, product.origin)).open();
    await enter(page, product.link);
    await page.getByText('demo-owner (owner)').waitFor();
    await product.ask('POST', '/administrators', { name: 'mallory', roles: ['support'] });
    const { url } = await product.ask<{ url: string }>('POST', '/console-links', { administrator: 'mallory' });
    const posted: string[] = [];
    page.on('request', (request) => {
      if (request.method() === 'POST') posted.push(new URL(request.url()).pathname);
    });
    await page.goto(url);
    await page.getByRole('button', { name: 'Sign in', exact: true }).waitFor();
    await page.waitForLoadState('networkidle');
    t.same(posted, []);
    t.notMatch(page.url(), /#/, 'the address bar does not keep the token');
    await page.goto(`${product.origin}/console/`);
    await page.getByText('demo-owner (owner)').waitFor();
    await enter(page, url);
    await page.getByText('mallory (support)').waitFor();
    t.same(posted, ['/console/api/enter']);
  },
);

t.test('a foreign Host gets 421, so that DNS rebinding reaches nothing', async (t) => {
  const { ask } = await consoleFixture(t, 'sqlite::memory:');
  for (const host of ['evil.example', 'console.example.com', 'console.example.com:7444', '127.0.0.1:7443'])
    for (const at of ['/console/', '/console/api/me', '/console/sign-in'])
      t.equal((await ask('GET', at, { headers: { host } })).status, 421, `${host} ${at}`);
});

t.test('no page can frame the console or load anything of another origin', async (t) => {
  const { ask } = await consoleFixture(t, 'sqlite::memory:');
  for (const at of [
    '/console/',
    '/console/api/me',
    '/console/assets/main-1.js',
    '/console/none',
    '/console/sign-in',
    '/',
  ]) {
    const { headers } = await ask('GET', at);
    const policy = String(headers['content-security-policy']);
    for (const part of ["default-src 'none'", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'"])
      t.ok(policy.includes(part), `${at}: ${part}`);
    t.ok(policy.includes("require-trusted-types-for 'script'") && !policy.includes('unsafe'), at);
    t.match(headers, {
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'no-referrer',
      'cross-origin-opener-policy': 'same-origin',
      'cross-origin-resource-policy': 'same-origin',
    });
  }
});

t.test('the admin API does not read the cookie, and the console reads no token', async (t) => {
  const { ask, app, createPerson, signIn } = await consoleFixture(t, 'sqlite::memory:');
  const { token } = await createPerson('olu', ['owner']);
  const session = await signIn(token);
  const withCookie = await app.inject({ method: 'GET', url: '/me', headers: { cookie: `__Host-console=${session}` } });
  t.equal(withCookie.statusCode, 401);
  for (const of of [undefined, session]) {
    const withToken = await ask('GET', '/console/api/me', {
      session: of,
      headers: { authorization: `Bearer ${token}` },
    });
    t.match(withToken, { status: 401, body: { message: /accepts no bearer token/ } });
  }
});
