import { execFile } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { createClient } from '@hey-api/openapi-ts';
import openapiTypescript, { astToString } from 'openapi-typescript';
import t, { type Test } from 'tap';
import ts from 'typescript';
import { systemTimers } from '../../../src/cli/compose/system-clock.js';
import { startServices } from '../../../src/services/start-services.js';
import { liveKey, startTestGateway } from '../../edge/harness.js';
import { addWallet, balanceOf } from '../services-fixture.js';

const run = promisify(execFile);
const merchant = { merchantId: 'm_1', environment: 'live' } as const;
const amount = 250_000;
const description = path.resolve('docs/openapi.yaml');

/** A generator, and a merchant's program that uses the generated client. */
interface Generator {
  readonly name: string;
  /** Writes the client to a directory. */
  readonly generate: (folder: string) => Promise<unknown>;
  readonly program: string;
}

const order = `
const { BASE_URL = '', API_KEY = '', WALLET_ID = '', REFERENCE = '' } = process.env;
const body = {
  walletId: WALLET_ID,
  destinationBankCode: '058',
  destinationAccountNumber: '0123456789',
  destinationAccountName: 'Amina Okafor',
  amount: ${amount},
  remarks: null,
  reference: REFERENCE,
};
const headers = { 'Idempotency-Key': REFERENCE };
`;

const generators: readonly Generator[] = [
  {
    name: 'openapi-typescript',
    generate: async (folder) => {
      const types = astToString(await openapiTypescript(pathToFileURL(description)));
      await writeFile(path.join(folder, 'schema.ts'), types);
    },
    program: `
import createClient from 'openapi-fetch';
import type { paths } from './schema.js';
${order}
const client = createClient<paths>({ baseUrl: BASE_URL, headers: { 'x-api-key': API_KEY } });
const paid = await client.POST('/dev/payouts', { body, params: { header: headers } });
const again = await client.POST('/dev/payouts', { body });
// @ts-expect-error An amount is a number.
const wrong = await client.POST('/payouts', { body: { amount: '1', currency: 'NGN', recipient: '+2348012345678' } });
const found = await client.GET('/dev/payouts', { params: { query: { reference: REFERENCE, page: 1, per_page: 20 } } });
console.log(
  JSON.stringify({
    id: paid.data?.data.id,
    payout: paid.data?.data,
    code: again.error?.data?.code,
    payoutId: again.error?.data?.payoutId,
    wrong: wrong.error?.data?.errors.map(({ path }) => path),
    found: found.data?.data.map(({ id }) => id),
    total: found.data?.meta.total_records,
  }),
);
`,
  },
  {
    name: '@hey-api/openapi-ts',
    generate: (folder) =>
      createClient({
        ...{
          input: description,
          output: folder,
          plugins: ['@hey-api/client-fetch', '@hey-api/typescript', '@hey-api/sdk'],
        },
        logs: { level: 'silent', file: false },
      }),
    program: `
import { client } from './client.gen.js';
import { getDevPayouts, postDevPayouts, postPayouts } from './sdk.gen.js';
${order}
client.setConfig({ baseUrl: BASE_URL, auth: () => API_KEY });
const paid = await postDevPayouts({ body, headers });
const again = await postDevPayouts({ body });
// @ts-expect-error An amount is a number.
const wrong = await postPayouts({ body: { amount: '1', currency: 'NGN', recipient: '+2348012345678' } });
const found = await getDevPayouts({ query: { reference: REFERENCE, page: 1, per_page: 20 } });
console.log(
  JSON.stringify({
    id: paid.data?.data.id,
    payout: paid.data?.data,
    code: again.error?.data?.code,
    payoutId: again.error?.data?.payoutId,
    wrong: wrong.error?.data?.errors.map(({ path }) => path),
    found: found.data?.data.map(({ id }) => id),
    total: found.data?.meta.total_records,
  }),
);
`,
  },
];

/** Compiles a program and its imports in strict mode, with the output next to the sources. Returns the errors. */
function compile(file: string): string[] {
  const program = ts.createProgram([file], {
    ...{
      strict: true,
      skipLibCheck: true,
      target: ts.ScriptTarget.ES2023,
      lib: ['lib.es2023.d.ts', 'lib.dom.d.ts', 'lib.dom.iterable.d.ts'],
    },
    ...{ module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext, types: ['node'] },
  });
  const { diagnostics } = program.emit();
  return [...ts.getPreEmitDiagnostics(program), ...diagnostics].map((one) => {
    const where = one.file === undefined ? '' : `${path.basename(one.file.fileName)}: `;
    return `${where}${ts.flattenDiagnosticMessageText(one.messageText, '\n')}`;
  });
}

/** Services with a funded merchant, behind a gateway. */
async function startApi(t: Test) {
  const services = await startServices({
    ...{ host: '127.0.0.1', port: 0, databaseUrl: 'sqlite::memory:', timers: systemTimers, assertions: null },
    clock: { now: () => Date.now() },
    bank: { delayMilliseconds: 3_600_000, failingAccounts: [] },
  });
  t.teardown(() => services.close());
  const walletId = await addWallet(services.database, merchant, { balance: 10 * amount });
  const upstream = { url: services.url };
  const upstreams = { transactions: upstream, payouts: upstream, customers: upstream };
  const gateway = await startTestGateway(t, { config: { upstreams } });
  return { walletId, database: services.database, url: `https://127.0.0.1:${gateway.https}/v1`, ca: gateway.ca };
}

for (const generator of generators) {
  t.test(`the client generated by ${generator.name} compiles and makes a payout`, async (t) => {
    const { walletId, database, url, ca } = await startApi(t);
    const folder = t.testdir({ 'ca.pem': ca, 'package.json': '{"type":"module"}' });
    const client = path.join(folder, 'client');
    await mkdir(client);
    await generator.generate(client);
    const file = path.join(client, 'pay.ts');
    await writeFile(file, generator.program);
    t.same(compile(file), [], 'it compiles in strict mode');
    const { stdout } = await run(process.execPath, [file.replace(/\.ts$/, '.js')], {
      env: {
        ...{ BASE_URL: url, API_KEY: liveKey, WALLET_ID: walletId, REFERENCE: 'invoice-42' },
        NODE_EXTRA_CA_CERTS: path.join(folder, 'ca.pem'),
      },
    });
    const output = JSON.parse(stdout) as { readonly id: string };
    t.match(output, {
      payout: { status: 'pending', amount, walletId, merchantReference: 'invoice-42', remarks: null },
      ...{ code: 'reference_taken', payoutId: output.id, wrong: ['amount'], found: [output.id], total: 1 },
    });
    t.equal(await balanceOf(database, walletId), 9 * amount, 'the money was debited once');
  });
}
