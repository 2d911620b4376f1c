import { setTimeout as wait } from 'node:timers/promises';
import type { Route } from 'playwright-core';
import t from 'tap';
import { accessibilityProblems, enter, holdRequests, startBrowser, startProduct, withoutBrowser } from './browser.js';

t.test(
  'an owner manages administrators and tokens, and verifies the events',
  { skip: withoutBrowser, timeout: 240_000 },
  async (t) => {
    const product = await startProduct(t, 'reasonFor: [allowlists:write]');
    const browser = await startBrowser(t, product.origin);
    const page = await browser.open();
    const button = (name: string | RegExp) => page.getByRole('button', { name }).first();
    const noProblems = async (where: string): Promise<void> => {
      t.same(await accessibilityProblems(page), [], `accessibility: ${where}`);
    };
    const dialog = page.getByRole('dialog');
    const failure = { success: false, message: 'unavailable', data: null };
    /** The reasons of the changes that `withReason` has accepted. */
    const reasons: string[] = [];
    /**
     * Returns a handler of changes that acts like a registry that requires a reason. It refuses a change without a
     * reason, and passes any other change to `accept`.
     */
    const withReason = (accept: (route: Route) => Promise<void>) => (route: Route) => {
      const reason = route.request().headers()['x-reason'];
      const json = { success: false, message: 'A reason is required', data: { code: 'reason_required' } };
      if (reason === undefined) return route.fulfill({ status: 400, json });
      reasons.push(decodeURIComponent(reason));
      return accept(route);
    };
    const at = '2026-01-15T12:00:00.000Z';
    const done = { success: true, message: 'done', data: {} };
    const pageOf = (route: Route): number => Number(new URL(route.request().url()).searchParams.get('page') ?? 1);
    /** Responds to a request for a list that has `total` records. */
    const respondWithPage = (route: Route, data: readonly object[], total: number): Promise<void> => {
      const meta = { total_records: total, current_page: pageOf(route), total_pages: Math.ceil(total / 50) };
      return route.fulfill({ json: { success: true, message: 'list', data, meta } });
    };
    const give = async (reason: string): Promise<void> => {
      await page.getByRole('textbox', { name: 'Reason' }).fill(reason);
      await button('Send with this reason').click();
    };
    await t.test('a link can be used again after a response that the registry is unavailable', async () => {
      const entering = '**/console/api/enter';
      await page.route(entering, (route) => route.fulfill({ status: 503, json: failure }), { times: 1 });
      await enter(page, product.link);
      await page.getByText('The registry cannot respond now.').waitFor();
      await noProblems('a link that could not be used yet');
      await page.getByRole('button', { name: 'Sign in', exact: true }).click();
      await page.getByRole('heading', { name: 'Merchants' }).waitFor();
    });

    await t.test('a late response leads nobody away from another page', async (t) => {
      const create = async (name: string): Promise<() => Promise<void>> => {
        const release = await holdRequests(page, '**/console/api/merchants');
        await button('New merchant').click();
        await page.getByLabel('Name', { exact: true }).fill(name);
        await dialog.getByRole('button', { name: 'New merchant' }).click();
        await dialog.getByText('Sending…').waitFor();
        return release;
      };
      await page.getByRole('link', { name: 'Administrators' }).click();
      await page.getByRole('link', { name: 'Merchants', exact: true }).click();
      const responded = page.waitForResponse('**/console/api/merchants');
      const releaseLate = await create('Late Shop');
      await page.goBack();
      await page.getByRole('heading', { name: 'Administrators' }).waitFor();
      await releaseLate();
      await (await responded).finished();
      // When the response to one more request arrives, the page has handled the late response.
      await page.evaluate(`fetch('/console/api/me').then((response) => response.text())`);
      t.match(page.url(), /\/administrators$/);

      await page.getByRole('link', { name: 'Merchants', exact: true }).click();
      const release = await create('Corner Shop');
      await page.keyboard.press('Escape');
      await release();
      await page.getByRole('heading', { name: 'API keys' }).waitFor();
      await page.getByText('Corner Shop').waitFor();
    });

    await t.test('the page asks for the reason that the registry requires', async (t) => {
      await button('Suspend').click();
      await dialog.getByRole('button', { name: 'Suspend' }).click();
      await page.getByRole('textbox', { name: 'Reason' }).waitFor();
      await noProblems('suspend with a reason');
      await give('contract nº 4711 – ended');
      await dialog.getByText(/The change was in force on|No gateway is running/).waitFor();
      await button('Done').click();
      await button('Make active').waitFor();
      const [event] = await product.ask<{ reason: string }[]>('GET', '/events?action=merchant.changed');
      t.equal(event?.reason, 'contract nº 4711 – ended');
    });

    await t.test('an allowlist is saved with the reason, also after a confirmation', async (t) => {
      await page.goto(`${product.origin}/console/merchants/${product.merchantId}/allowlists`);
      await page.getByLabel('Accept requests only from this list').first().check();
      await page.getByRole('textbox', { name: 'IP addresses' }).fill('8.0.0.0/7');
      await button('Save').click();
      await page.getByRole('textbox', { name: 'Reason' }).waitFor();
      await noProblems('allowlists with a reason');
      await give('a new data centre');
      await page.getByLabel(/I understand:/).check();
      t.equal(await page.getByRole('textbox', { name: 'Reason' }).inputValue(), 'a new data centre');
      await button('Save').click();
      await page.getByText('Saved.', { exact: true }).waitFor();
      const [event] = await product.ask<{ reason: string }[]>('GET', '/events?action=merchant.changed');
      t.equal(event?.reason, 'a new data centre');
    });

    await t.test('the role of an invited member cannot be changed after a failed link', async (t) => {
      await page.goto(`${product.origin}/console/merchants/${product.merchantId}/members`);
      await page.route('**/links', (route) => route.fulfill({ status: 503, json: failure }), { times: 1 });
      await button('Invite a member').click();
      await page.getByLabel('Name', { exact: true }).fill('kim');
      await page.getByRole('radio', { name: /^Admin/ }).check();
      await button('Create the link').click();
      await dialog.getByText('We do not know whether your change was made.').waitFor();
      t.ok(await page.getByRole('radio', { name: /^Viewer/ }).isDisabled());
      await button('Create the link').click();
      await button('Copy link').click();
      await page.getByText('Copied', { exact: true }).waitFor();
      await button('Done').click();
      await page.getByRole('row', { name: /kim.*Admin/ }).waitFor();
    });

    await t.test('an administrator is created, changed and signed in by a link', async (t) => {
      await page.getByRole('link', { name: 'Administrators' }).click();
      await button('New administrator').click();
      await page.getByLabel('Name', { exact: true }).fill('sam');
      await page.getByRole('checkbox', { name: /^support/ }).check();
      await noProblems('new administrator');
      await page.getByRole('dialog').getByRole('button', { name: 'New administrator' }).click();
      await page.getByRole('row', { name: /sam .*support/ }).waitFor();
      await button('Change sam').click();
      await page.getByRole('checkbox', { name: /^auditor/ }).check();
      await button('Save').click();
      await page.getByRole('row', { name: /sam .*support, auditor/ }).waitFor();

      // The form has roles and a status, and this test changes the status. The first attempt is refused, because it
      // needs a new proof of identity. The retry must send the status again, and not the roles.
      const sent: unknown[] = [];
      await page.route('**/administrators/adm_*', async (route) => {
        if (route.request().method() !== 'PATCH') return route.fallback();
        sent.push(route.request().postDataJSON());
        if (sent.length > 1) return route.fallback();
        const data = { code: 'identity_not_proven' };
        return route.fulfill({ status: 403, json: { status: false, message: 'Prove your identity again', data } });
      });
      await button('Change sam').click();
      await button('Disable').click();
      await button('I have signed in again').click();
      await page.getByRole('row', { name: /sam .*DISABLED/i }).waitFor();
      t.match(sent, [{ status: 'DISABLED' }, { status: 'DISABLED' }]);
      await button('Change sam').click();
      await button('Enable').click();
      await page.getByRole('row', { name: /sam .*ACTIVE/i }).waitFor();
      await page.unroute('**/administrators/adm_*');

      await button('Link sam').click();
      await button('Create the link').click();
      const link = await page.getByRole('textbox', { name: 'The link' }).inputValue();
      await page.keyboard.press('Escape');
      await page.getByText('You have not copied the link.').waitFor();
      await page.getByRole('alert').getByRole('button', { name: 'Close' }).click();
      const theirs = await startBrowser(t, product.origin);
      const sam = await theirs.open();
      await enter(sam, link);
      await sam.getByRole('heading', { name: 'Merchants' }).waitFor();
      t.equal(await sam.getByRole('button', { name: 'New merchant' }).count(), 0, 'support creates nothing');
      await sam.getByRole('link', { name: 'Administrators' }).click();
      await sam.getByRole('row', { name: /demo-owner/ }).waitFor();
      t.equal(await sam.getByRole('button', { name: 'New administrator' }).count(), 0);

      await page.getByRole('link', { name: 'Sessions sam' }).click();
      await page.getByRole('heading', { name: /^Sessions of adm_/ }).waitFor();
      await noProblems('sessions of another administrator');
      const ending = '**/console/api/sessions/*';
      await page.route(ending, (route) => route.fulfill({ status: 503, json: failure }), { times: 1 });
      await button('End session').click();
      await page.getByText('We do not know whether your change was made.').waitFor();
      await button('End session').click();
      await sam.getByText('You were signed out').first().waitFor();
    });

    await t.test('a token is created, shown once, used and revoked', async (t) => {
      await page.getByRole('link', { name: 'Your tokens' }).click();
      await button('Create token').click();
      await page.getByLabel('Name', { exact: true }).fill('laptop');
      await page.getByLabel('Only from these addresses').fill('127.0.0.1 ::1');
      await noProblems('create a token');
      await page.getByRole('dialog').getByRole('button', { name: 'Create token' }).click();
      const token = await page.getByRole('textbox', { name: 'The token' }).inputValue();
      t.match(token, /^mga_[\w-]+/);
      await button('Copy token').click();
      await button('Done').click();
      await page.getByRole('row', { name: /laptop.*127\.0\.0\.1, ::1/ }).waitFor();
      t.notOk((await page.content()).includes(token), 'the page no longer has it');
      await button('Revoke laptop').click();
      await noProblems('revoke a token');
      await page.getByRole('dialog').getByRole('button', { name: 'Revoke', exact: true }).click();
      await page.getByRole('row', { name: /laptop.*Revoked/ }).waitFor();
    });

    await t.test('events appear while changes are more frequent than the list can be read', async (t) => {
      const [list, chain] = [/\/api\/events\?/, '**/console/api/events/chain'];
      let chainReads = 0;
      await page.route(chain, (route) => {
        chainReads += 1;
        return route.fallback();
      });
      await page.getByRole('link', { name: 'Events', exact: true }).click();
      await page.getByText(/^All \d+ events are in the hash chain/).waitFor();
      await page.getByRole('cell', { name: 'token.revoked' }).first().waitFor();
      await page.route(list, async (route) => {
        await wait(1500);
        await route.fallback();
      });
      const shown: number[] = [];
      const keyIds: string[] = [];
      for (let count = 0; count < 10; count += 1) {
        const { keyId } = await product.ask<{ keyId: string }>('POST', `/merchants/${product.merchantId}/keys`, {
          environment: 'test',
        });
        keyIds.push(keyId);
        await wait(500);
        const cells = keyIds.map((id) => page.getByRole('cell', { name: id, exact: true }).count());
        shown.push((await Promise.all(cells)).reduce((sum, cell) => sum + cell, 0));
      }
      t.ok((shown.at(-1) ?? 0) > 0, `new events that the page shows after each change: ${shown.join(', ')}`);
      await page.getByRole('cell', { name: keyIds.at(-1) ?? '', exact: true }).waitFor();
      t.equal(chainReads, 1, 'the state of the chain is read only once');
      await page.unroute(list);
      await page.unroute(chain);
    });

    await t.test('the chain of events is verified in the browser', async () => {
      await page.getByRole('link', { name: 'Events', exact: true }).click();
      await page.getByText(/^All \d+ events are in the hash chain/).waitFor();
      await button('Verify the chain').click();
      await page.getByText(/^Chain complete: \d+ events\.$/).waitFor();
      await page.getByLabel('Who').fill('sam');
      await page.getByText('sign-in.succeeded').first().waitFor();
      await noProblems('events');

      // Events that retention deletes during the verification do not count as missing. Here, it deletes the first two.
      let pruned: object | undefined;
      await page.route('**/events/chain/rows?after=0', async (route) => {
        const response = await route.fetch();
        const body = (await response.json()) as { data: { events: { position: number; hash: string }[] } };
        [, pruned] = body.data.events.splice(0, 2);
        await route.fulfill({ response, json: body });
      });
      await page.route('**/events/chain', async (route) => {
        const response = await route.fetch();
        const body = (await response.json()) as { data: object };
        const data = pruned === undefined ? body.data : { ...body.data, pruned };
        await route.fulfill({ response, json: { ...body, data } });
      });
      await page.reload();
      await button('Verify the chain').click();
      await page.getByText(/^Chain complete: \d+ events\.$/).waitFor();
      t.ok(pruned);
      await page.unroute('**/events/chain/rows?after=0');
      await page.unroute('**/events/chain');

      // Simulates that somebody changed an event in the database. The page must show which event.
      let position = 0;
      await page.route('**/events/chain/rows*', async (route) => {
        const response = await route.fetch();
        const body = (await response.json()) as { data: { events: { position: number; content: string }[] } };
        const event = body.data.events[3];
        if (event !== undefined) {
          ({ position } = event);
          event.content = event.content.replace('"actor":"', '"actor":"x');
        }
        await route.fulfill({ response, json: body });
      });
      await button('Verify the chain').click();
      await page.getByText(/The chain breaks at event \d+/).waitFor();
      await page.getByText(`The chain breaks at event ${position}.`, { exact: false }).waitFor();

      // The page shows the result of the verification even if an event is outside the chain.
      await page.route('**/events/chain', async (route) => {
        const response = await route.fetch();
        const body = (await response.json()) as { data: object };
        const data = { ...body.data, unchained: { count: 1, firstSeq: 2 } };
        await route.fulfill({ response, json: { ...body, data } });
      });
      await page.reload();
      const outside = page.getByText('1 event is not in the hash chain: event 2.');
      await outside.waitFor();
      await button('Verify the chain').click();
      await page.getByText(`The chain breaks at event ${position}.`, { exact: false }).waitFor();
      await outside.waitFor();
      await noProblems('a broken chain, and an event outside it');
    });

    await t.test('decisions get a reason, and the last one of a page shows the page before', async (t) => {
      const { merchantId } = product;
      let findings = 51;
      await page.route(/\/api\/unusual\?/, (route) => {
        const isSecond = pageOf(route) === 2;
        const message = isSecond ? 'the last finding' : 'an earlier finding';
        const data = isSecond && findings === 50 ? [] : [{ id: 'fnd_1', foundAt: at, message, merchantId, keyId: 'k' }];
        return respondWithPage(route, data, findings);
      });
      await page.route(
        '**/unusual/fnd_1/answer',
        withReason((route) => {
          findings -= 1;
          return route.fulfill({ json: done });
        }),
      );
      await page.goto(`${product.origin}/console/unusual?page=2`);
      await page
        .getByRole('row', { name: /the last finding/ })
        .getByRole('button', { name: 'This use is fine' })
        .click();
      await give('the new office');
      await page.getByRole('row', { name: /an earlier finding/ }).waitFor();
      t.match(page.url(), /\?page=1$/);

      const approval = { change: 'merchant.change', merchantId, reason: null, requestedAt: at, expiresAt: at };
      let waiting = ['sam', 'kim'].map((requester) => ({ ...approval, id: `apr_${requester}`, requester }));
      const approvals = /\/api\/approvals\?/;
      await page.route(approvals, (route) => respondWithPage(route, waiting, waiting.length));
      await page.route(
        '**/approvals/apr_sam/reject',
        withReason((route) => {
          const data = { code: 'identity_not_proven' };
          return route.fulfill({ status: 403, json: { success: false, message: 'Prove your identity again', data } });
        }),
      );
      await page.route(
        '**/approvals/apr_kim/reject',
        withReason((route) => {
          waiting = [];
          return route.fulfill({ json: done });
        }),
      );
      await page.getByRole('link', { name: 'Approvals' }).click();
      const reject = (requester: RegExp) =>
        page.getByRole('row', { name: requester }).getByRole('button', { name: 'Reject' }).click();
      await reject(/\bsam\b/);
      await page.getByRole('textbox', { name: 'Reason' }).waitFor();
      const release = await holdRequests(page, approvals);
      await give('agreed with sam');
      await page.getByText('Prove that it is you').waitFor();
      await release();
      // The reason that was typed for one decision is not sent with another.
      await reject(/\bkim\b/);
      await page.getByText('This change needs a reason.').waitFor();
      t.equal(await page.getByRole('textbox', { name: 'Reason' }).inputValue(), '');
      await give('no contract');
      await page.getByText('Nothing waits for approval.').waitFor();
      await page.getByRole('textbox', { name: 'Reason' }).waitFor({ state: 'detached' });
      t.same(reasons, ['the new office', 'agreed with sam', 'no contract']);
    });

    await t.test('a change is approved after a question that shows it', async (t) => {
      const { merchantId } = product;
      const earlier = reasons.length;
      const change = { change: 'merchant.change', before: { goLive: false }, after: { goLive: true } };
      const times = { requestedAt: at, expiresAt: at };
      let waiting = [{ ...change, ...times, id: 'apr_kim', merchantId, requester: 'kim', reason: 'contract 4711' }];
      const approvals = /\/api\/approvals\?/;
      await page.route(approvals, (route) => respondWithPage(route, waiting, waiting.length));
      let sent = 0;
      const accept = withReason((route) => {
        waiting = [];
        return route.fulfill({ json: done });
      });
      await page.route('**/approvals/apr_kim/approve', (route) => {
        sent += 1;
        return accept(route);
      });
      await page.goto(`${product.origin}/console/approvals`);
      await button('Approve').click();
      for (const text of ['merchant.change', merchantId, 'kim', 'contract 4711', '{"goLive":false}', '{"goLive":true}'])
        await dialog.getByText(text, { exact: true }).waitFor();
      t.equal(await page.evaluate('document.activeElement.textContent'), 'Cancel');
      await noProblems('approve a change');
      await dialog.getByRole('button', { name: 'Cancel' }).click();
      t.equal(sent, 0, 'nothing is sent before the confirmation');
      await button('Approve').click();
      await dialog.getByRole('button', { name: 'Approve' }).click();
      await give('contract checked');
      await page.getByText('Nothing waits for approval.').waitFor();
      await dialog.waitFor({ state: 'detached' });
      t.same(reasons.slice(earlier), ['contract checked']);
      t.equal(sent, 2, 'without and with the reason');
    });

    await t.test('the key of a finding is revoked after a question, and the page says where', async (t) => {
      const { merchantId } = product;
      const { keyId } = await product.ask<{ keyId: string }>('POST', `/merchants/${merchantId}/keys`, {
        environment: 'test',
      });
      const finding = { id: 'fnd_2', foundAt: at, message: 'a new country', merchantId, keyId };
      await page.route(/\/api\/unusual\?/, (route) => respondWithPage(route, [finding], 1));
      const sent: unknown[] = [];
      await page.route('**/unusual/fnd_2/answer', (route) => {
        sent.push(route.request().postDataJSON());
        const propagation = { gateways: 1, confirmed: 1, pending: [], milliseconds: 4 };
        return route.fulfill({ json: { ...done, data: { propagation } } });
      });
      await page.goto(`${product.origin}/console/unusual`);
      await button('Revoke the key').click();
      await dialog.getByText('This cannot be undone.').waitFor();
      t.equal(await page.evaluate('document.activeElement.textContent'), 'Keep the key');
      await noProblems('revoke the key of a finding');
      t.same(sent, [], 'nothing is sent before the confirmation');
      await dialog.getByRole('button', { name: 'Revoke key' }).click();
      await dialog.getByText('The change was in force on 1 of 1 gateway after 4 ms.').waitFor();
      await button('Done').click();
      t.same(sent, [{ answer: 'revoked' }]);
    });

    await t.test('approvals and sessions beyond the first page are shown', async (t) => {
      const { merchantId } = product;
      const approval = { change: 'merchant.change', merchantId, reason: null, requestedAt: at, expiresAt: at };
      const session = { createdAt: at, lastSeenAt: at, expiresAt: at, source: '192.0.2.1', isCurrent: false };
      const lists = { approvals: /\/api\/approvals\?/, sessions: /\/api\/sessions\?/ };
      for (const [name, requests] of Object.entries(lists)) {
        await page.route(requests, (route) => {
          const [id, text] = [`id_${pageOf(route)}`, `row of page ${pageOf(route)}`];
          return respondWithPage(route, [{ ...approval, ...session, id, requester: text, browser: text }], 51);
        });
        await page.goto(`${product.origin}/console/${name}`);
        await page.getByRole('cell', { name: 'row of page 1' }).waitFor();
        await button('Next page').click();
        await page.getByRole('cell', { name: 'row of page 2' }).waitFor();
        t.match(page.url(), /\?page=2$/, 'the page is in the address');
        await page.unroute(requests);
      }
    });

    await t.test('a reason that was typed for one change of a dialog is not sent with another', async (t) => {
      const earlier = reasons.length;
      const changes = '**/console/api/administrators/adm_*';
      await page.route(
        changes,
        withReason((route) => route.fulfill({ status: 503, json: failure })),
      );
      const unclear = dialog.getByText('We do not know whether your change was made.');
      await page.getByRole('link', { name: 'Administrators' }).click();
      await button('Change sam').click();
      await page.getByRole('checkbox', { name: /^auditor/ }).uncheck();
      await button('Save').click();
      await give('fewer duties');
      await unclear.waitFor();
      await button('Disable').click();
      await dialog.getByText('This change needs a reason.').waitFor();
      t.equal(await page.getByRole('textbox', { name: 'Reason' }).inputValue(), '');
      await give('left the company');
      await unclear.waitFor();
      t.same(reasons.slice(earlier), ['fewer duties', 'left the company']);
      await button('Cancel').click();
      await page.unroute(changes);
    });

    await t.test('a sign-out that fails says why, and gets a reason', async (t) => {
      await page.route(
        '**/console/api/sessions/*',
        withReason((route) => route.fallback()),
      );
      // A reason that was typed and cancelled is not sent with the next sign-out.
      await button('Sign out').click();
      await page.getByRole('textbox', { name: 'Reason' }).fill('not yet');
      await button('Cancel').click();
      await button('Sign out').click();
      await page.getByRole('textbox', { name: 'Reason' }).waitFor();
      t.equal(await page.getByRole('textbox', { name: 'Reason' }).inputValue(), '');
      await noProblems('sign out with a reason');
      await give('end of the shift');
      await page.getByRole('heading', { name: 'Sign in' }).waitFor();
      t.equal(reasons.at(-1), 'end of the shift');
    });
    t.same(
      browser.faults.filter((fault) => !/status of (?:40[013]|422|503)/.test(fault)),
      [],
    );
  },
);
