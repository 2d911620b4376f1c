import type { TlsCredentials } from './credentials.js';
import { expiryWarnings, problemOf, readTlsMaterial } from './tls-material.js';
import type { TlsFiles } from './tls-material.js';

/** The result of reloading changed files. */
export interface CertificateChange {
  /**
   * `replaced`: the new files are in use. `refused`: the previous files stay in use. `restored`: after a `refused`
   * change, the files again contain the certificates and keys in use.
   */
  readonly result: 'replaced' | 'refused' | 'restored';
  /** Why the new files were rejected and the previous ones stay in use; null otherwise. */
  readonly problem: string | null;
}

/** The machine's clock, in milliseconds since 1970. */
interface WallClock {
  now(): number;
}

/** Callbacks for certificate changes and warnings. */
interface ReloadListener {
  readonly changed: (change: CertificateChange) => void;
  /**
   * Called for a certificate in use that expires soon, has expired or is not valid yet. `isOver` means that clients
   * already reject the certificate.
   */
  readonly warn: (warning: string, isOver: boolean) => void;
}

/**
 * Polls the contents of the TLS files, and applies changes from the next handshake on. Does not use timestamps or file
 * events: Kubernetes swaps a symbolic link to a directory, which triggers no event for a watched file. Does not apply
 * files that are invalid, expired or not valid yet, or that do not match each other, as during an incomplete swap.
 */
export class TlsReload {
  readonly #credentials: TlsCredentials;
  readonly #files: TlsFiles;
  readonly #clock: WallClock;
  readonly #listener: ReloadListener;
  /** Warnings already issued. Each warning is issued only once. */
  #warned = new Set<string>();
  #problem: string | null = null;
  #timer: NodeJS.Timeout | undefined;
  #checking: Promise<void> = Promise.resolve();

  constructor(credentials: TlsCredentials, files: TlsFiles, clock: WallClock, listener: ReloadListener) {
    this.#credentials = credentials;
    this.#files = files;
    this.#clock = clock;
    this.#listener = listener;
  }

  /** Why the files were unusable at the last check; null if they were usable. */
  get problem(): string | null {
    return this.#problem;
  }

  /** Starts periodic checks. */
  start(everySeconds: number): void {
    this.#timer = setInterval(() => void this.check(), everySeconds * 1000);
    this.#timer.unref();
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#checking;
  }

  /** Checks the files now, after any check in progress. Resolves when changed files are in use or were rejected. */
  check(): Promise<void> {
    this.#checking = this.#checking.then(() => this.#reloadIfChanged());
    return this.#checking;
  }

  /** Issues new warnings about the certificates in use, each one only once. */
  warn(): void {
    const warnings = expiryWarnings(this.#credentials.material, this.#clock.now());
    for (const { warning, isOver } of warnings) if (!this.#warned.has(warning)) this.#listener.warn(warning, isOver);
    this.#warned = new Set(warnings.map(({ warning }) => warning));
  }

  async #reloadIfChanged(): Promise<void> {
    let problem: string | null;
    let isReplaced = false;
    try {
      // Retry once. If reading failed because the files were being swapped, the swap is complete at the second attempt.
      const material = await readTlsMaterial(this.#files).catch(() => readTlsMaterial(this.#files));
      const inUse = this.#credentials.material;
      const changed = material.digest !== inUse.digest;
      problem = changed ? problemOf(material, inUse, this.#clock.now()) : null;
      if (changed && problem === null) {
        this.#credentials.replace(material);
        isReplaced = true;
      }
      this.#credentials.renewTicketKeys();
    } catch (error) {
      problem = error instanceof Error ? error.message : 'unknown reason';
    }
    const before = this.#problem;
    this.#problem = problem;
    if (isReplaced) this.#listener.changed({ result: 'replaced', problem: null });
    // Report each problem once, not at every check.
    else if (problem !== null && problem !== before) this.#listener.changed({ result: 'refused', problem });
    else if (problem === null && before !== null) this.#listener.changed({ result: 'restored', problem });
    this.warn();
  }
}
