import { cutAtKey } from '../../telemetry/mask-keys.js';
import type { BatchWriter, KeyRows } from '../../usage/batch-text.js';
import { type MerchantTally, type UsageTally, withoutKey } from './usage-counter.js';

/**
 * The counts of one past period. They may need several batches (messages), because a message has a maximum length.
 */
export class UsageParts {
  readonly #tally: UsageTally;
  readonly #merchants: readonly (readonly [id: string, merchant: MerchantTally])[];
  #sent = 0;

  constructor(tally: UsageTally) {
    this.#tally = tally;
    this.#merchants = [...tally.merchants];
  }

  /**
   * Number of keys and merchants that are not in a batch (message to the registry) yet. All requests without a known
   * key count as one key.
   */
  get left(): number {
    return this.#tally.ids.length + this.#merchants.length - this.#sent;
  }

  /**
   * What was dropped in this period for lack of memory. `refusals` is the number of requests whose details were
   * dropped; `rows` is the number of requests missing in the tables by address, User-Agent and host. Only the first
   * batch (message to the registry) of the period reports these numbers. Later batches report 0, because the registry
   * adds up the numbers of all batches.
   */
  get dropped(): UsageTally['dropped'] {
    return this.#sent === 0 ? this.#tally.dropped : { refusals: 0, rows: 0 };
  }

  /** Writes the counts of the next `count` keys and merchants, without removing them. */
  write(count: number, writer: BatchWriter): void {
    const [tally, end] = [this.#tally, this.#sent + count];
    const keys = tally.ids.length;
    for (let owner = this.#sent; owner < Math.min(end, keys); owner += 1) {
      if (owner === withoutKey) writeKey(tally, owner, writer, writer.unknown);
      else {
        const [id = null, merchantId = null] = [tally.ids[owner], tally.merchantIds[owner]];
        const isFound = merchantId !== null;
        writeKey(tally, owner, writer, writer.key(isFound ? id : null, merchantId, isFound ? null : id));
      }
    }
    for (const [merchantId, { number, refusals }] of this.#merchants.slice(
      Math.max(0, this.#sent - keys),
      Math.max(0, end - keys),
    ))
      writeHosts(tally, number, writer, writer.merchant(merchantId, refusals));
  }

  /** Removes the next `count` keys and merchants, because a batch (message to the registry) now contains them. */
  remove(count: number): void {
    this.#sent += count;
  }
}

function writeKey({ codes, addresses, agents }: UsageTally, owner: number, writer: BatchWriter, rows: KeyRows): void {
  codes.each(owner, ({ label, period, place }) => {
    writer.code(rows.codes, {
      hour: period,
      code: label ?? '',
      count: codes.numberAt(place),
      totalMilliseconds: rounded(codes.numberAt(place + 1)),
      slowestMilliseconds: rounded(codes.numberAt(place + 2)),
      requestBytes: codes.numberAt(place + 3),
      responseBytes: codes.numberAt(place + 4),
    });
  });
  // The key's last accepted request. Requests from addresses without a row of their own are not considered.
  const last = { at: 0, address: '', country: null as string | null };
  addresses.each(owner, ({ label, note, period, firstAt, place }) => {
    const country = note?.countryIsoCode ?? null;
    writer.address(rows.addresses, {
      day: period,
      address: label,
      country,
      asNumber: note?.asNumber ?? null,
      accepted: addresses.numberAt(place + 1),
      refused: addresses.numberAt(place),
      firstAt,
      lastAt: addresses.numberAt(place + 2),
    });
    const at = addresses.numberAt(place + 3);
    if (label !== null && at > last.at) Object.assign(last, { at, address: label, country });
  });
  if (last.at > 0) writer.lastUse(rows.lastUse, last);
  // A client could have put its key into the User-Agent header, so cut the text off where a key begins.
  agents.each(owner, ({ label, period, place }) => {
    writer.agent(rows.agents, { day: period, agent: label && cutAtKey(label), count: agents.numberAt(place) });
  });
}

/** Rounds milliseconds to microseconds. With all digits, a batch (message to the registry) would be a third longer. */
function rounded(milliseconds: number): number {
  return Math.round(milliseconds * 1000) / 1000;
}

function writeHosts({ hosts }: UsageTally, merchant: number, writer: BatchWriter, list: number[]): void {
  hosts.each(merchant, ({ label, period, place }) => {
    const [header = '', host = null] = label?.split(' ', 2) ?? [];
    const counts = { accepted: hosts.numberAt(place + 1), refused: hosts.numberAt(place) };
    writer.host(list, { day: period, header, host: host === null ? null : cutAtKey(host), ...counts });
  });
}
