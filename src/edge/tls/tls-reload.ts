import type { Clock } from '../../gateway/ports.js';
import type { TlsEndpoint } from './tls-endpoint.js';
import { expiryWarnings, problemOf, readTlsMaterial } from './tls-material.js';
import type { TlsFiles } from './tls-material.js';

/** What became of files that have changed. */
export interface CertificateChange {
  /** `restored`: those that are in use are there again, in place of ones that were refused. */
  readonly result: 'replaced' | 'refused' | 'restored';
  /** Why they are refused, so that those from before stay in use; null where they are not. */
  readonly problem: string | null;
}

/** Who hears of TLS's files. */
interface Told {
  readonly changed: (change: CertificateChange) => void;
  /** Of a certificate in use that ends soon, is over or has not begun. */
  readonly warn: (warning: string, isOver: boolean) => void;
}

/**
 * Looks at the contents of TLS's files from time to time, and has new ones used from the next handshake on. Contents, not
 * times or file events: Kubernetes swaps a symbolic link to a directory, which says nothing to whoever watches the file.
 * Files that cannot be used, do not belong together (a swap that is half done) or have expired change nothing.
 */
export class TlsReload {
  readonly #endpoint: TlsEndpoint;
  readonly #files: TlsFiles;
  readonly #clock: Clock;
  readonly #tell: Told;
  /** What was warned of, so that it is told once. */
  #warned = new Set<string>();
  #problem: string | null = null;
  #timer: NodeJS.Timeout | undefined;
  #checking: Promise<void> = Promise.resolve();

  constructor(endpoint: TlsEndpoint, files: TlsFiles, clock: Clock, tell: Told) {
    this.#endpoint = endpoint;
    this.#files = files;
    this.#clock = clock;
    this.#tell = tell;
  }

  /** Why the files, as they were seen last, cannot be used; null while they can. */
  get problem(): string | null {
    return this.#problem;
  }

  /** Looks every so many seconds. */
  start(everySeconds: number): void {
    this.#timer = setInterval(() => void this.check(), everySeconds * 1000);
    this.#timer.unref();
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#checking;
  }

  /** Looks now, after a look that is under way. Resolves when what has changed is in use, or is known not to be usable. */
  check(): Promise<void> {
    this.#checking = this.#checking.then(() => this.#look());
    return this.#checking;
  }

  /** Warns of the certificates in use, of each thing once. */
  warn(): void {
    const warnings = expiryWarnings(this.#endpoint.material, this.#clock.now());
    for (const { warning, isOver } of warnings) if (!this.#warned.has(warning)) this.#tell.warn(warning, isOver);
    this.#warned = new Set(warnings.map(({ warning }) => warning));
  }

  async #look(): Promise<void> {
    let problem: string | null;
    let isReplaced = false;
    try {
      // A swap that came between two of these files is over when they are read again.
      const material = await readTlsMaterial(this.#files).catch(() => readTlsMaterial(this.#files));
      const changed = material.digest !== this.#endpoint.material.digest;
      problem = changed ? problemOf(material, this.#clock.now()) : null;
      if (changed && problem === null) {
        this.#endpoint.replace(material);
        isReplaced = true;
      }
      this.#endpoint.renewTicketKeys();
    } catch (error) {
      problem = error instanceof Error ? error.message : 'unknown reason';
    }
    const before = this.#problem;
    this.#problem = problem;
    if (isReplaced) this.#tell.changed({ result: 'replaced', problem: null });
    // Once for each problem, not once for each look.
    else if (problem !== null && problem !== before) this.#tell.changed({ result: 'refused', problem });
    else if (problem === null && before !== null) this.#tell.changed({ result: 'restored', problem });
    this.warn();
  }
}
