import { open, readdir, readFile, rename, rm, utimes, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { uniqueId } from '../unique-id.js';

// A checkpoint is a signed state of the log, which the gateway sends to the registry.

/** The checkpoints to which an ended process received no reply from the registry. */
export interface FormerSubmissions {
  readonly submissions: readonly string[];
  /** Deletes the stored checkpoints. Call this after the registry has replied to all of these checkpoints. */
  readonly remove: () => Promise<void>;
}

/** What the scans of the folder have shown about one file with the checkpoints of another process. */
interface Sighting {
  /** The inode and modification time of the file. The value changes each time the owning process touches the file. */
  readonly stamp: string;
  /** How many consecutive scans of the folder found the file unchanged. */
  readonly idleScans: number;
  /** Whether the file changed between two scans. If so, its process was running at that time. */
  readonly wasTouched: boolean;
}

const defaultRefreshMilliseconds = 2_000;
/**
 * A process counts as ended if this number of scans found its file unchanged. A limit in seconds would not work: after
 * a pause of the whole machine, the files of running processes too would be older than the limit.
 */
const idleScansOfGone = 5;
const suffix = '.unanswered';
/**
 * Suffix for the file of a process that has shut down normally. The previous release of the gateway also reads files
 * with this suffix.
 */
const releasedSuffix = `.released${suffix}`;
/**
 * Suffix for the file of a running process. The previous release would take over a file that ends with `.unanswered`,
 * so this suffix ends differently.
 */
const liveSuffix = `${suffix}.live`;
const nameForm = /^\.([0-9A-Z]{26})(?:\.[0-9A-Z]{26})?((?:\.released)?\.unanswered|\.unanswered\.live)$/;

/**
 * Stores checkpoints to which the registry sent no reply, and takes over the files of ended processes. A process
 * touches its files to show that it runs. Process ids could not show this, because containers with separate process ids
 * can share the folder.
 */
export class UnansweredFiles {
  readonly #beside: string;
  readonly #everyMilliseconds: number;
  readonly #refreshMilliseconds: number;
  readonly #file: string;
  /** The files taken over from ended processes, renamed to names of this process. */
  readonly #taken = new Set<string>();
  #seen: ReadonlyMap<string, Sighting> = new Map();
  readonly #timer: NodeJS.Timeout;
  #scanning: Promise<void> = Promise.resolve();
  #isScanning = false;
  #saving: Promise<void> = Promise.resolve();
  #isReleased = false;

  /** @param beside the beginning of the path of each file with checkpoints; an id and a suffix follow it */
  constructor(beside: string, everyMilliseconds: number, refreshMilliseconds = defaultRefreshMilliseconds) {
    [this.#beside, this.#everyMilliseconds, this.#refreshMilliseconds] = [
      beside,
      everyMilliseconds,
      refreshMilliseconds,
    ];
    this.#file = this.#nameOf(uniqueId(), liveSuffix);
    this.#refresh();
    this.#timer = setInterval(() => {
      this.#refresh();
    }, refreshMilliseconds).unref();
  }

  /** Replaces the checkpoints in the file of this process. Deletes the file if the list is empty. */
  save(submissions: readonly string[]): void {
    this.#saving = this.#saving.then(() => this.#save(submissions));
  }

  /**
   * Returns the checkpoints to which ended processes received no reply, oldest process first. If `previous` is given,
   * waits until it is known whether the process that wrote the run `previous` has ended.
   * @param previous the id of the run (a hash chain) before the current run in the log, or null
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

  /** Renames the files of this process, so that other processes can take them over. */
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

  /**
   * Touches the files of this process and scans the folder, unless the former scan is still under way. If scans queued
   * while the file system hangs, they would later run in quick succession. Running processes could not touch their
   * files in between, and would count as ended.
   */
  #refresh(): void {
    if (this.#isScanning) return;
    this.#isScanning = true;
    this.#scanning = Promise.all([this.#file, ...this.#taken].map(touch))
      .then(() => this.#scan())
      .finally(() => {
        this.#isScanning = false;
      });
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
    // A process of the previous release rewrites its file with each new checkpoint, but does not touch the file in
    // between. Such a process counts as ended if its file stays unchanged for several checkpoint intervals, or if
    // the current process continues its log.
    const idleMilliseconds = idleScans * this.#refreshMilliseconds;
    const isIdle = idleScans >= idleScansOfGone && idleMilliseconds >= 3 * this.#everyMilliseconds;
    return isIdle || (previous !== null && (await hasRun(file, previous)));
  }

  /** Takes over a file by renaming it. If several processes try this, only one succeeds. */
  async #claim(file: string): Promise<void> {
    const own = this.#nameOf(this.#partsOf(file)?.id ?? uniqueId(), `.${uniqueId()}${liveSuffix}`);
    try {
      await touch(file); // otherwise the file would still look idle, and another process would take it over too
      await rename(file, own);
      this.#taken.add(own);
    } catch {
      // Another process has taken the file.
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
      // Ignored: without the file, for example on a read-only disk, the next process cannot send these checkpoints.
    }
  }
}

async function touch(file: string): Promise<void> {
  const now = new Date();
  await utimes(file, now, now).catch(() => undefined); // ignored: the file can be missing
}

/**
 * Returns a text that identifies a version of a file; null if the file cannot be read. Opens the file first: NFS can
 * report an outdated time for a file that is not open.
 */
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
    return []; // the file was removed meanwhile, or is not a file of this program
  }
}
