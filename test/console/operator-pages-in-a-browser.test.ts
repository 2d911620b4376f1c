import t from 'tap';
import { accessibilityProblems, startBrowser, startProduct, withoutBrowser } from './browser.js';

t.test(
  'an owner manages administrators and tokens, and verifies the events',
  { skip: withoutBrowser, timeout: 180_000 },
  async (t) => {
    const product = await startProduct(t);
    const browser = await startBrowser(t, product.origin);
    const page = await browser.open();
    const button = (name: string | RegExp) => page.getByRole('button', { name }).first();
    const noProblems = async (where: string): Promise<void> => {
      t.same(await accessibilityProblems(page), [], `accessibility: ${where}`);
    };
    await page.goto(product.link);
    await page.getByRole('heading', { name: 'Merchants' }).waitFor();

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

      await button('Link sam').click();
      await button('Create the link').click();
      const link = await page.getByRole('textbox', { name: 'The link' }).inputValue();
      await page.keyboard.press('Escape');
      await page.getByText('You have not copied the link.').waitFor();
      await page.getByRole('alert').getByRole('button', { name: 'Close' }).click();
      const theirs = await startBrowser(t, product.origin);
      const sam = await theirs.open();
      await sam.goto(link);
      await sam.getByRole('heading', { name: 'Merchants' }).waitFor();
      t.equal(await sam.getByRole('button', { name: 'New merchant' }).count(), 0, 'support creates nothing');
      await sam.getByRole('link', { name: 'Administrators' }).click();
      await sam.getByRole('row', { name: /demo-owner/ }).waitFor();
      t.equal(await sam.getByRole('button', { name: 'New administrator' }).count(), 0);

      await page.getByRole('link', { name: 'Sessions sam' }).click();
      await page.getByRole('heading', { name: /^Sessions of adm_/ }).waitFor();
      await noProblems('sessions of another administrator');
      await button('End session').click();
      await sam.getByText('You were signed out').first().waitFor({ timeout: 10_000 });
    });

    await t.test('a token is created, shown once, used and revoked', async (t) => {
      await page.getByRole('link', { name: 'Your tokens' }).click();
      await button('Create token').click();
      await page.getByLabel('Name', { exact: true }).fill('laptop');
      await page.getByLabel('Only from these addresses').fill('127.0.0.1 ::1');
      await noProblems('create a token');
      await page.getByRole('dialog').getByRole('button', { name: 'Create token' }).click();
      const token = await page.getByRole('textbox', { name: 'The token' }).inputValue();
      t.match(token, /^mga_\w+/);
      await button('Copy token').click();
      await button('Done').click();
      await page.getByRole('row', { name: /laptop.*127\.0\.0\.1, ::1/ }).waitFor();
      t.notOk((await page.content()).includes(token), 'the page no longer has it');
      await button('Revoke laptop').click();
      await noProblems('revoke a token');
      await page.getByRole('dialog').getByRole('button', { name: 'Revoke', exact: true }).click();
      await page.getByRole('row', { name: /laptop.*Revoked/ }).waitFor();
    });

    await t.test('the chain of events is verified in the browser', async () => {
      await page.getByRole('link', { name: 'Events', exact: true }).click();
      await page.getByText(/^All \d+ events are in the hash chain/).waitFor();
      await button('Verify the chain').click();
      await page.getByText(/^Chain complete: \d+ events\.$/).waitFor();
      await page.getByLabel('Who').fill('sam');
      await page.getByText('sign-in.succeeded').first().waitFor();
      await noProblems('events');

      // What somebody changed in the database is shown; the request for the rows has the same shape.
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
    });
    t.same(browser.faults, []);
  },
);
