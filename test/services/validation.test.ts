import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { addWallet, balanceOf, bankPayout, identityOf, merchantA, onEachServices } from './services-fixture.js';

const amountMessage = 'amount must be a positive whole number of minor units, such as kobo, up to 9007199254740991';
const someWallet = '0b8f6f0e-4c9b-4a35-9b52-3a4d5f6e7a80';

onEachServices(
  'each invalid field of a payout is rejected with a specific message, and no value is converted',
  async (t, { call, database }) => {
    const walletId = await addWallet(database, merchantA, { balance: 1000 });
    const cases: [field: string, values: unknown[], message: string][] = [
      ['amount', [1.5, '100', 0, -1, 2 ** 53, null, true, [100], {}, -0, 0.1], amountMessage],
      ['walletId', ['', 'x', 1, null, `${walletId} `, `${walletId}\n`, `{${walletId}}`], 'walletId must be a UUID'],
      [
        'destinationBankCode',
        ['', '05', 58, 'abc', '05 8', '٠٥٨', '0'.repeat(11)],
        'destinationBankCode must be a string of 3 to 10 digits',
      ],
      [
        'destinationAccountNumber',
        [123456789, '1234', '0123456789\n', '9'.repeat(35)],
        'destinationAccountNumber must be a string of 5 to 34 digits',
      ],
      [
        'destinationAccountName',
        ['', ' ', 'a\0b', 'a\nb', '\ud800', 'a\u2028b', 'x'.repeat(101), 7, null],
        'destinationAccountName must be a text of 1 to 100 characters on one line, without anything that looks like an API key',
      ],
      [
        'remarks',
        ['', 'x'.repeat(256), 'a\u0085b', 5],
        'remarks must be a text of 1 to 255 characters on one line, without anything that looks like an API key, or null',
      ],
    ];
    for (const [path, values, message] of cases) {
      for (const value of values) {
        const response = await call(merchantA, 'POST', '/dev/payouts', {
          body: bankPayout(walletId, { [path]: value }),
        });
        const expected = { success: false, message, data: { code: 'validation_failed', errors: [{ path, message }] } };
        t.same(response, { status: 422, body: expected }, `${path}: ${encodeURI(JSON.stringify(value))}`);
      }
    }
    const huge = JSON.stringify(bankPayout(walletId)).replace('"amount":100', '"amount":1e400');
    t.match(await call(merchantA, 'POST', '/dev/payouts', { payload: huge }), {
      status: 422,
      body: { message: amountMessage },
    });
    t.equal(await balanceOf(database, walletId), 1000);
  },
);

onEachServices(
  'all problems are reported, the first as the message, and unknown fields by name',
  async (t, { call }) => {
    const response = await call(merchantA, 'POST', '/dev/payouts', {
      body: {
        walletId: someWallet,
        destinationAccountName: 'Amina',
        amount: '100',
        note: 1,
        constructor: 2,
        remarks: 3,
      },
    });
    t.equal(response.status, 422);
    t.equal(response.body.message, 'destinationBankCode is required');
    t.same(response.body.data, {
      code: 'validation_failed',
      errors: [
        { path: 'destinationBankCode', message: 'destinationBankCode is required' },
        { path: 'destinationAccountNumber', message: 'destinationAccountNumber is required' },
        { path: 'amount', message: amountMessage },
        {
          path: 'remarks',
          message:
            'remarks must be a text of 1 to 255 characters on one line, without anything that looks like an API key, or null',
        },
        { path: 'note', message: 'note is not a known field' },
        { path: 'constructor', message: 'constructor is not a known field' },
      ],
    });
    const parts = await call(merchantA, 'POST', '/payouts?page=1', {
      body: { amount: 1, currency: 'NGN' },
      headers: { 'idempotency-key': 'a b' },
    });
    t.equal(parts.body.message, 'recipient is required');
    t.same(
      (parts.body.data as { errors: { path: string }[] }).errors.map(({ path }) => path),
      ['recipient', 'page', 'Idempotency-Key'],
      'the problems of body, query and header together',
    );
    const many = Object.fromEntries(Array.from({ length: 5000 }, (_, index) => [`${index}${'x'.repeat(99)}`, 1]));
    const { data } = (await call(merchantA, 'POST', '/dev/payouts', { body: many })).body;
    t.ok(JSON.stringify(data).length < 10_000, 'the error report is bounded');
  },
);

onEachServices('a payout to a recipient is validated by its own fields', async (t, { call }) => {
  const order = { amount: 100, currency: 'NGN', recipient: '+2348012345678' };
  const cases: [changes: Record<string, unknown>, path: string][] = [
    [{ currency: 'ngn' }, 'currency'],
    [{ currency: 'NGNN' }, 'currency'],
    [{ currency: undefined }, 'currency'],
    [{ recipient: '' }, 'recipient'],
    [{ recipient: 2348012345678 }, 'recipient'],
    [{ recipient: '1'.repeat(65) }, 'recipient'],
    [{ amount: 10.01 }, 'amount'],
    [{ walletId: someWallet }, 'walletId'],
  ];
  for (const [changes, path] of cases) {
    const response = await call(merchantA, 'POST', '/payouts', { body: { ...order, ...changes } });
    t.match(response, { status: 422, body: { data: { errors: [{ path }] } } }, JSON.stringify(changes));
  }
  const message =
    'recipient must be an identifier of 3 to 64 characters: a letter, a digit or +, then letters, digits and . _ @ -, without anything that looks like an API key';
  for (const recipient of ['+1', '+234 801 234', 'ada+1@example.com', '-ab']) {
    t.match(
      await call(merchantA, 'POST', '/payouts', { body: { ...order, recipient } }),
      { body: { message } },
      recipient,
    );
  }
  for (const recipient of ['+12', 'ada.l_o-v@example.com', '0'.repeat(64)]) {
    const noWallet = { body: { message: /^There is no default wallet in NGN/ } };
    t.match(await call(merchantA, 'POST', '/payouts', { body: { ...order, recipient } }), noWallet, recipient);
  }
});

onEachServices(
  'the content type of a request without a body is ignored, if its route requires none',
  async (t, { app, call }) => {
    const body = { email: 'ada@example.com', firstName: 'Ada', lastName: 'Obi' };
    const types = ['text/plain;charset=UTF-8', 'application/x-www-form-urlencoded', 'application', 'application/json'];
    const lengths: Record<string, string>[] = [{}, { 'content-length': '0' }];
    const urlOfNew = async () => {
      const { data } = (await call(merchantA, 'POST', '/dev/customers', { body })).body;
      return `/dev/customers/${(data as { id: string }).id}`;
    };
    for (const type of types) {
      for (const length of lengths) {
        const headers = { 'content-type': type, ...length };
        const response = await call(merchantA, 'DELETE', await urlOfNew(), { headers });
        t.equal(response.status, 200, `${type}, ${JSON.stringify(length)}`);
      }
    }
    const url = await urlOfNew();
    const headers = { ...identityOf(merchantA), 'content-type': 'text/plain' };
    t.equal((await app.inject({ method: 'DELETE', url, headers, payload: 'x' })).statusCode, 415, 'with a body');
    const chunked = { ...headers, 'transfer-encoding': 'chunked' };
    t.equal(
      (await app.inject({ method: 'DELETE', url, headers: chunked })).statusCode,
      415,
      'with a body of unknown length',
    );
  },
);

onEachServices('a body that is not a JSON object is rejected in the envelope', async (t, { call }) => {
  const type = 'Content-Type must be application/json';
  const encoding = 'Content-Encoding is not supported: send the body uncompressed';
  const cases: [
    title: string,
    payload: string | Buffer | undefined,
    headers: Record<string, string>,
    status: number,
    message: string,
  ][] = [
    ['no JSON', '{"amount":', {}, 422, 'The body is not valid JSON'],
    ['empty', '', {}, 422, 'The body is not valid JSON'],
    ['two values', '{} {}', {}, 422, 'The body is not valid JSON'],
    ['compressed', gzipSync('{}'), { 'content-encoding': 'gzip' }, 415, encoding],
    ['uncompressed with Content-Encoding', '{}', { 'content-encoding': 'Gzip, br' }, 415, encoding],
    ['no UTF-8', Buffer.from([0x22, 0xff, 0x22]), {}, 422, 'The body is not valid UTF-8'],
    ['a repeated field', '{"amount":1,"amount":2}', {}, 422, 'The field "amount" is given more than once'],
    [
      'a repeated field, escaped',
      '{"amount":1,"\\u0061mount":2}',
      {},
      422,
      'The field "amount" is given more than once',
    ],
    ['__proto__', '{"__proto__":{"amount":1}}', {}, 422, 'The field "__proto__" is not allowed'],
    ['__proto__ below', '{"a":[{"__proto__":1}]}', {}, 422, 'The field "__proto__" is not allowed'],
    ['deep', '['.repeat(500_000), {}, 422, 'The body is nested more than 32 levels deep'],
    ['an array', '[]', {}, 422, 'The body must be a JSON object'],
    ['null', 'null', {}, 422, 'The body must be a JSON object'],
    ['a form', 'amount=1', { 'content-type': 'application/x-www-form-urlencoded' }, 415, type],
    ['text', '{}', { 'content-type': 'text/plain' }, 415, type],
    ['another JSON media type', '{}', { 'content-type': 'application/json-patch+json' }, 415, type],
    ['an invalid media type', '{}', { 'content-type': 'application' }, 415, type],
    ['no type', '{}', { 'content-type': '' }, 415, type],
    ['no body', undefined, {}, 415, type],
    ['too large', `"${'x'.repeat(1024 * 1024)}"`, {}, 413, 'The body is too large'],
  ];
  for (const [title, payload, headers, status, message] of cases) {
    const details =
      payload === undefined ? { headers } : { payload, headers: { 'content-type': 'application/json', ...headers } };
    const response = await call(merchantA, 'POST', '/dev/payouts', details);
    t.match(response, { status, body: { success: false, message } }, title);
    if (status === 422)
      t.same(response.body.data, { code: 'validation_failed', errors: [{ path: '', message }] }, title);
    else {
      const code = status === 413 ? 'body_too_large' : 'unsupported_media_type';
      t.same(response.body.data, { code, errors: [] }, title);
    }
  }
  const charset = { 'content-type': 'application/json; charset=utf-8' };
  t.equal(
    (await call(merchantA, 'POST', '/dev/payouts', { payload: '{}', headers: charset })).status,
    422,
    'the content type may have a charset',
  );
  const identity = { 'content-encoding': 'identity' };
  const withIdentity = await call(merchantA, 'POST', '/dev/payouts', { payload: '{}', headers: identity });
  t.match(withIdentity, { status: 422, body: { message: 'walletId is required' } }, 'identity is not a content coding');
});

onEachServices('an unknown route or method gets an error in the envelope', async (t, { call }) => {
  const noRoute = { message: 'Route not found', data: { code: 'route_not_found', errors: [] } };
  for (const [method, path] of [
    ['GET', '/'],
    ['GET', '/v1/transactions'],
    ['POST', '/nothing'],
  ] as const) {
    t.same(await call(merchantA, method, path), { status: 404, body: { success: false, ...noRoute } }, path);
  }
  for (const [method, path, allow] of [
    ['GET', '/payouts', 'POST'],
    ['PUT', '/dev/payouts', 'GET, HEAD, POST'],
    ['DELETE', '/transactions', 'GET, HEAD'],
    ['OPTIONS', '/transactions', 'GET, HEAD'],
    ['POST', `/dev/customers/${someWallet}`, 'DELETE, GET, HEAD, PATCH'],
  ] as const) {
    const message = `Method not allowed: this path takes ${allow}`;
    const body = { success: false, message, data: { code: 'method_not_allowed', errors: [] } };
    t.same(await call(merchantA, method, path), { status: 405, body }, `${method} ${path}`);
  }
  t.match(await call(merchantA, 'GET', '/dev/payouts/%zz'), {
    status: 400,
    body: { success: false, data: { code: 'bad_request' } },
  });
});

onEachServices('an unknown, repeated or malformed query parameter is rejected', async (t, { call }) => {
  const page = 'page must be a whole number from 1 to 999999999';
  const perPage = 'per_page must be a whole number from 1 to 100';
  const cases = [
    ['?page=0', page],
    ['?page=-1', page],
    ['?page=1.5', page],
    ['?page=', page],
    ['?page=1&page=2', page],
    ['?page=1e3', page],
    ['?page=99999999999', page],
    ['?per_page=0', perPage],
    ['?per_page=101', perPage],
    ['?per_page=all', perPage],
    ['?limit=5', 'limit is not a known query parameter'],
    ['?__proto__=1', '__proto__ is not a known query parameter'],
  ] as const;
  for (const list of ['/transactions', '/dev/payouts', '/dev/wallets', '/dev/customers']) {
    for (const [query, message] of cases) {
      t.match(await call(merchantA, 'GET', `${list}${query}`), { status: 422, body: { message } }, `${list}${query}`);
    }
  }
  for (const path of [`/dev/wallets/${someWallet}`, `/dev/payouts/${someWallet}`, `/dev/customers/${someWallet}`]) {
    t.equal((await call(merchantA, 'GET', `${path}?expand=1`)).status, 422, path);
  }
});

onEachServices('no body causes an internal error', async (t, { call, database, logged }) => {
  const walletId = await addWallet(database, merchantA, { balance: 1000, isDefault: true });
  const targets = [
    ['POST', '/dev/payouts'],
    ['POST', '/payouts'],
    ['POST', '/dev/customers'],
    ['PATCH', `/dev/customers/${someWallet}`],
  ] as const;
  const names = [
    'walletId',
    'amount',
    'currency',
    'recipient',
    'destinationBankCode',
    'destinationAccountNumber',
    'destinationAccountName',
    'remarks',
    'email',
    'firstName',
    'lastName',
    'phone',
  ];
  const fields = fc.dictionary(fc.constantFrom(...names), fc.jsonValue());
  const halfRight = fields.map((some) => ({ ...bankPayout(walletId), ...some }));
  const json = fc.oneof(fc.jsonValue(), fields, halfRight).map((value) => JSON.stringify(value));
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...targets), fc.oneof(json, fc.string()), async ([method, url], payload) => {
      const headers = { 'content-type': 'application/json' };
      const { status, body } = await call(merchantA, method, url, { payload, headers });
      if (status >= 500) throw new Error(`${status} for ${payload}`);
      return body.success === status < 300;
    }),
    { numRuns: 600 },
  );
  t.same(logged, []);
});
