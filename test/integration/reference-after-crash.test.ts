import { setTimeout as wait } from 'node:timers/promises';
import { openServicesDatabase } from '../../src/services/services-database.js';
import { onEachDatabase } from '../database/each-database.js';
import { addWallet, balanceOf, bankPayout, identityOf, ledgerSum, patient } from '../services/services-fixture.js';
import { startKillableServices } from './killable-services.js';

const merchant = { merchantId: 'm_1', environment: 'live' } as const;
const count = 60;
const atOnce = 20;
const amount = 10;

interface FinalResponse {
  readonly status: number;
  readonly payoutId: string;
}

onEachDatabase(
  'a merchant that sends only references pays once per reference although the services are killed',
  async (t, url) => {
    const seeded = await openServicesDatabase({ url, pool: patient });
    const walletId = await addWallet(seeded, merchant, { balance: count * amount });
    await seeded.destroy();
    const services = await startKillableServices(t, url);
    let completed = 0;
    let unanswered = 0;

    /** Retries with the same reference until there is a final response, like a merchant that lost a response. */
    async function pay(reference: string): Promise<FinalResponse> {
      for (;;) {
        const body = JSON.stringify(bankPayout(walletId, { amount, reference }));
        const headers = { ...identityOf(merchant), 'content-type': 'application/json' };
        const response = await fetch(`${services.url}/dev/payouts`, { method: 'POST', headers, body }).catch(
          () => null,
        );
        const envelope = (await response?.json().catch(() => null)) as
          { readonly data: { readonly id?: string; readonly payoutId?: string } | null } | null | undefined;
        const payoutId = envelope?.data?.id ?? envelope?.data?.payoutId;
        if (response?.status !== undefined && response.status < 500 && payoutId !== undefined) {
          completed += 1;
          return { status: response.status, payoutId };
        }
        if (response !== null && response.status < 500) throw new Error(JSON.stringify(envelope));
        unanswered += 1;
        await wait(20);
      }
    }

    // Each reference is also sent twice concurrently: one request creates the payout, the other gets its id. Not all
    // references are sent at once. So even after a pause of this process, some are left to send when the services are
    // killed.
    const references = Array.from({ length: count }, (_, index) => `invoice-${index}`);
    const responses: (readonly [FinalResponse, FinalResponse])[] = [];
    const left = [...references.entries()];
    const payInTurn = async (): Promise<void> => {
      for (let one = left.shift(); one !== undefined; one = left.shift()) {
        const [index, reference] = one;
        responses[index] = await Promise.all([pay(reference), pay(reference)]);
      }
    };
    const paying = Promise.all(Array.from({ length: atOnce }, payInTurn));
    for (const share of [4, 2]) {
      while (completed < (2 * count) / share) await wait(1);
      await services.kill();
      await services.start();
    }
    await paying;
    t.equal(responses.length, count);
    t.comment(`${unanswered} requests without a response`);
    t.ok(unanswered > 0, 'some requests were aborted');
    for (const [one, other] of responses) t.equal(one.payoutId, other.payoutId, 'both responses name the same payout');
    t.ok(
      responses.every(([one, other]) => one.status === 409 || other.status === 409),
      'at most one of the two requests created the payout',
    );
    await services.kill();

    const database = await openServicesDatabase({ url, pool: patient });
    t.teardown(() => database.destroy());
    const rows = await database.selectFrom('payouts').select(['id', 'merchant_reference']).execute();
    t.equal(rows.length, count, 'no payout is lost or doubled');
    for (const { id, merchant_reference: reference } of rows) {
      t.equal(responses[references.indexOf(reference ?? '')]?.[0].payoutId, id, reference ?? 'without a reference');
    }
    t.equal(await balanceOf(database, walletId), 0);
    t.equal(await ledgerSum(database, walletId), 0);
  },
);
