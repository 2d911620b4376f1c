import { benchKey } from './place.js';

/** The Host header of the requests. */
export const host = 'api.merchant.example';
/** The network of the client addresses. */
export const clientAddresses = '198.18.0.0/15';

const addressCount = 4096;
const unknownKeys = 64;

/** The variable parts of a request. */
interface RequestParts {
  readonly target?: string;
  readonly key: string;
  readonly address: number;
  readonly body?: string;
}

/** A request as forwarded by a load balancer in front of the subject. */
function requestText({ target = '/v1/transactions', key, address, body }: RequestParts): string {
  const from = `198.18.${Math.floor(address / 250)}.${(address % 250) + 1}`;
  const head =
    `${body === undefined ? 'GET' : 'POST'} ${target} HTTP/1.1\r\nhost: ${host}\r\nx-api-key: ${key}\r\n` +
    `accept: application/json\r\nuser-agent: benchmark/1\r\nx-forwarded-for: ${from}\r\nx-forwarded-proto: https\r\n`;
  return body === undefined
    ? `${head}\r\n`
    : `${head}content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
}

/**
 * Returns a source of requests: a function that returns the next of these requests on each call, and begins again after
 * the last one.
 */
function inTurn(requests: readonly string[]): () => string {
  let index = 0;
  return () => requests[(index += 1) % requests.length] ?? '';
}

/**
 * A source of requests with valid keys. Each key has its own client address; above 4,096 keys, keys share addresses.
 */
export function accepted(keys: number, target?: string, body?: string): () => string {
  return inTurn(
    Array.from({ length: keys }, (_, number) =>
      requestText({
        ...{ key: benchKey(number), address: number % addressCount },
        ...(target === undefined ? {} : { target }),
        ...(body === undefined ? {} : { body }),
      }),
    ),
  );
}

/** A source of requests with a malformed key, from 4,096 client addresses. */
export function badFormat(): () => string {
  return inTurn(Array.from({ length: addressCount }, (_, address) => requestText({ key: 'sk_live_4eC39Hq', address })));
}

/**
 * A source of requests with 64 unknown keys, from so many addresses that the gateway throttles no single address. But
 * all addresses together exceed `throttle.totalBadKeys`. The gateway then responds with 429 to a key with a wrong
 * checksum, unless its look-up result is cached. So these keys are shorter than generated keys: like imported keys,
 * they have no checksum.
 */
export function unknownKey(): () => string {
  const key = (number: number): string => `svc_live_${number.toString(36).padStart(40, 'z')}`;
  return inTurn(
    Array.from({ length: addressCount }, (_, address) => requestText({ key: key(address % unknownKeys), address })),
  );
}

/** A source of payout requests with valid keys and a body of 206 bytes. */
export function payouts(keys: number): () => string {
  const bare = {
    ...{ walletId: '0b9f3c9e-8f6d-4a57-9f2a-3f1c2a7d5e10', destinationBankCode: '058' },
    ...{ destinationAccountNumber: '0123456789', destinationAccountName: 'Amina Okafor', amount: 250_000, remarks: '' },
  };
  const remarks = 'Invoice 42'.padEnd(206 - JSON.stringify(bare).length, '.');
  return accepted(keys, '/v1/dev/payouts', JSON.stringify({ ...bare, remarks }));
}

/**
 * A source of requests with Zipf-distributed keys: the second key is half as frequent as the first, the third a third.
 */
export function zipf(keys: number): () => string {
  const sums = new Float64Array(keys);
  let sum = 0;
  for (let number = 0; number < keys; number += 1) sums[number] = sum += 1 / (number + 1);
  return () => {
    const drawn = Math.random() * sum;
    let [from, to] = [0, keys - 1];
    while (from < to) {
      const middle = (from + to) >> 1;
      if ((sums[middle] ?? 0) < drawn) from = middle + 1;
      else to = middle;
    }
    return requestText({ key: benchKey(from), address: from % addressCount });
  };
}
