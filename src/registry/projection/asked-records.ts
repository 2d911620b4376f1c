import type { Logger, PresentRecords, RecordsStore } from '../ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { canBeKnown, currentRecords, merchantOf } from './current-records.js';
import { readHistory } from './history.js';
import type { Lease } from './lease.js';
import type { RecordsWriter } from './records-writer.js';

/** What gateways are answered with. */
export interface AskedRecordsOptions {
  readonly database: RegistryDatabase;
  readonly store: Pick<RecordsStore, 'inbox'>;
  readonly writer: RecordsWriter;
  readonly lease: Pick<Lease, 'keep'>;
  readonly logger?: Logger | undefined;
}

const mostAtOnce = 500;

/**
 * Answers gateways that do not find a record: it is looked up in the database by its name, and written again with its merchant, or there
 * is none. A gateway says "Invalid API Key" of a record that may be missing only after that.
 */
export class AskedRecords {
  readonly #options: AskedRecordsOptions;

  constructor(options: AskedRecordsOptions) {
    this.#options = options;
  }

  /**
   * Answers those who ask, in the generation of the store.
   * @param isFilling whether it is no loss that a record is not there
   * @returns whether a record was missing; null where this process projects no more
   */
  async answer({ isFilling }: { readonly isFilling: boolean }): Promise<boolean | null> {
    const { inbox } = this.#options.store;
    if (inbox === null) return false;
    let wasMissing = false;
    for (let asks = inbox.take(mostAtOnce); asks.length > 0; asks = inbox.take(mostAtOnce)) {
      const present = await this.#write(
        asks.map(({ record }) => record),
        isFilling,
      );
      if (present === null) return null;
      wasMissing ||= !isFilling && present.names.size > 0;
      await inbox.answer(asks, present);
    }
    return wasMissing;
  }

  async #write(records: readonly string[], isFilling: boolean): Promise<PresentRecords | null> {
    const { database, writer, lease, logger } = this.#options;
    const { generation, revision } = await readHistory(database);
    const found = (await currentRecords(database, records.filter(canBeKnown))).filter(({ value }) => value !== null);
    const names = new Set(found.map(({ name }) => name));
    // A key is of no use without its merchant.
    const merchants = found.flatMap((entry) => merchantOf(entry) ?? []).filter((name) => !names.has(name));
    const written = [...(await currentRecords(database, merchants)), ...found];
    if (written.length > 0) {
      await writer.rewrite(written, revision);
      const rewritten = { names: written.map(({ name }) => name), revision };
      if (!(await lease.keep(rewritten))) return null;
      if (!isFilling) logger?.warn({ records: names.size }, 'records were missing in Redis, and are written again');
    }
    return { names, generation };
  }
}
