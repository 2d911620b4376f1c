import { open, readdir, readFile, rename, rm, utimes, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { uniqueId } from '../unique-id.js';

/** Unanswered submissions of a process that has ended. */
export interface FormerSubmissions {
  readonly submissions: readonly string[];
  /** Deletes them: all have a reply. */
  readonly remove: () => Promise<void>;
}

/** What is known of the file of another process. */
interface Sighting {
  /** Changes with each touch. */
  readonly stamp: string;
  /** The number of consecutive scans without a touch. */
  readonly idleScans: number;
  /** Whether a touch was seen: its process lives, or did a moment ago. */
  readonly wasTouched: boolean;
}

const defaultRefreshMilliseconds = 2_000;
/** Scans are counted, not seconds: after a pause of the whole machine no process seems to be gone. */
const idleScansOfGone = 5;
const suffix = '.unanswered';
/** Of a process that has ended in order. The former release takes such files too. */
const releasedSuffix = `.released${suffix}`;
/** Of a live process. The former release takes every `.unanswered` file at once, so the name ends differently. */
const liveSuffix = `${suffix}.live`;
const nameForm = /^\.([0-9A-Z]{26})(?:\.[0-9A-Z]{26})?((?:\.released)?\.unanswered|\.unanswered\.live)$/;

/**
 * Stores the unanswered submissions of this process for the next one, and takes those of processes that have ended.
 * Process ids do not tell who lives, because containers may share the folder. So each process touches its files.
 */
export class UnansweredFiles {
  readonly #beside: string;
  readonly #everyMilliseconds: number;
  readonly #refreshMilliseconds: number;
  readonly #file: string;
  /** Files of ended processes, under names of this process. */
  readonly #taken = new Set<string>();
  #seen: ReadonlyMap<string, Sighting> = new Map();
  readonly #timer: NodeJS.Timeout;
  #scanning: Promise<void>;
  #saving: Promise<void> = Promise.resolve();
  #isReleased = false;

  /** @param beside path of a file. The submissions are stored next to it, under its name with an id and a suffix. */
  constructor(beside: string, everyMilliseconds: number, refreshMilliseconds = defaultRefreshMilliseconds) {
    [this.#beside, this.#everyMilliseconds, this.#refreshMilliseconds] = [
      beside,
      everyMilliseconds,
      refreshMilliseconds,
    ];
    this.#file = this.#nameOf(uniqueId(), liveSuffix);
    this.#scanning = this.#scan();
    this.#timer = setInterval(() => {
      this.#scanning = this.#scanning.then(async () => {
        await Promise.all([this.#file, ...this.#taken].map(touch));
        await this.#scan();
      });
    }, refreshMilliseconds).unref();
  }

  /** Replaces the submissions in the file of this process; without any, there is no file. */
  save(submissions: readonly string[]): void {
    this.#saving = this.#saving.then(() => this.#save(submissions));
  }

  /**
   * The submissions of ended processes, oldest process first.
   * @param previous the run that a waiting start names: its owner is waited for until it is known to live or to be gone
   */
  async take(previous: string | null): Promise<readonly FormerSubmissions[]> {
    await this.#scanning;
    while (previous !== null && !this.#isReleased && (await this.#isUndecided(previous)))
      await wait(this.#refreshMilliseconds / 2, undefined, { ref: false });
    for (const [file, sighting] of this.#seen)
      if (!this.#isReleased && (await this.#isGone(file, sighting, previous))) await this.#claim(file);
    const files = [...this.#taken].toSorted();
    return Promise.all(
      files.map(async (file) => ({
        submissions: await submissionsIn(file),
        remove: async () => {
          await rm(file, { force: true }).catch(() => undefined);
          this.#taken.delete(file);
        },
      })),
    );
  }

  /** Leaves the files of this process to other processes. */
  async release(): Promise<void> {
    clearInterval(this.#timer);
    await Promise.all([this.#saving, this.#scanning]);
    this.#isReleased = true;
    for (const file of [this.#file, ...this.#taken])
      await rename(file, this.#nameOf(this.#partsOf(file)?.id ?? uniqueId(), releasedSuffix)).catch(() => undefined);
  }

  #nameOf(id: string, ending: string): string {
    return `${this.#beside}.${id}${ending}`;
  }

  #partsOf(file: string): { readonly id: string; readonly ending: string } | null {
    const name = path.basename(file);
    const base = path.basename(this.#beside);
    const [, id, ending] = nameForm.exec(name.startsWith(base) ? name.slice(base.length) : '') ?? [];
    return id === undefined || ending === undefined ? null : { id, ending };
  }

  async #scan(): Promise<void> {
    const folder = path.dirname(this.#beside);
    const names = await readdir(folder).catch(() => []);
    const files = names.map((name) => `${folder}${path.sep}${name}`).filter((file) => this.#partsOf(file) !== null);
    const seen = new Map<string, Sighting>();
    for (const file of files) {
      const stamp = this.#isOwn(file) ? null : await stampOf(file);
      if (stamp === null) continue;
      const { stamp: before = stamp, idleScans = -1, wasTouched = false } = this.#seen.get(file) ?? {};
      const isTouched = before !== stamp;
      seen.set(file, { stamp, idleScans: isTouched ? 0 : idleScans + 1, wasTouched: wasTouched || isTouched });
    }
    this.#seen = seen;
  }

  #isOwn(file: string): boolean {
    return [this.#file, ...this.#taken].some((own) => path.basename(own) === path.basename(file));
  }

  async #isUndecided(run: string): Promise<boolean> {
    for (const [file, { idleScans, wasTouched }] of this.#seen)
      if (this.#partsOf(file)?.ending === liveSuffix && !wasTouched && idleScans < idleScansOfGone)
        if (await hasRun(file, run)) return true;
    return false;
  }

  async #isGone(file: string, { idleScans }: Sighting, previous: string | null): Promise<boolean> {
    const ending = this.#partsOf(file)?.ending;
    if (ending === releasedSuffix) return true;
    if (ending === liveSuffix) return idleScans >= idleScansOfGone;
    // The former release touches no file, and rewrites one with each new checkpoint. Its log may be this process's now.
    const idleMilliseconds = idleScans * this.#refreshMilliseconds;
    const isIdle = idleScans >= idleScansOfGone && idleMilliseconds >= 3 * this.#everyMilliseconds;
    return isIdle || (previous !== null && (await hasRun(file, previous)));
  }

  /** Renames the file: of several processes, only one succeeds. */
  async #claim(file: string): Promise<void> {
    const own = this.#nameOf(this.#partsOf(file)?.id ?? uniqueId(), `.${uniqueId()}${liveSuffix}`);
    try {
      await touch(file); // a rename alone does not, and the next process would take it again
      await rename(file, own);
      this.#taken.add(own);
    } catch {
      // Another process took it.
    }
  }

  async #save(submissions: readonly string[]): Promise<void> {
    const file = this.#file;
    if (this.#isReleased) return;
    try {
      if (submissions.length === 0) {
        await rm(file, { force: true });
        return;
      }
      await writeFile(`${file}.new`, JSON.stringify(submissions), { mode: 0o600 });
      await rename(`${file}.new`, file);
    } catch {
      // The disk may be read-only. Then the next process cannot send the unanswered submissions.
    }
  }
}

async function touch(file: string): Promise<void> {
  const now = new Date();
  await utimes(file, now, now).catch(() => undefined); // there may be no file
}

/** Identifies a version of a file. Opens the file, because NFS may have an old time of a file that is not opened. */
async function stampOf(file: string): Promise<string | null> {
  try {
    const handle = await open(file);
    try {
      const { ino, mtimeNs } = await handle.stat({ bigint: true });
      return `${ino} ${mtimeNs}`;
    } finally {
      await handle.close();
    }
  } catch {
    return null;
  }
}

async function hasRun(file: string, run: string): Promise<boolean> {
  const submissions = await submissionsIn(file);
  return submissions.some((submission) => submission.includes(`/${run}\n`));
}

async function submissionsIn(file: string): Promise<string[]> {
  try {
    const list: unknown = JSON.parse(await readFile(file, 'utf8'));
    return Array.isArray(list) ? list.filter((one) => typeof one === 'string') : [];
  } catch {
    return []; // removed meanwhile, or not a file of this program
  }
}
