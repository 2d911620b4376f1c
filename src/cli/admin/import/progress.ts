import type { CommandIo } from '../../command-io.js';

const width = 30;
const pauseMilliseconds = 100;
const eraseLine = '\r\u001b[K';

/** A bar on one line of a terminal; nothing where standard error is none. */
export class Progress {
  readonly #io: CommandIo;
  #shownAt = -Infinity;

  constructor(io: CommandIo) {
    this.#io = io;
  }

  /** @param total null where it is not known */
  show(what: string, done: number, total: number | null, detail: string): void {
    const now = performance.now();
    if (this.#io.isTerminal !== true || now - this.#shownAt < pauseMilliseconds) return;
    this.#shownAt = now;
    const share = total === null ? null : total === 0 ? 1 : Math.min(done / total, 1);
    const bar = share === null ? '' : ` [${'='.repeat(Math.round(share * width)).padEnd(width)}] ${percent(share)}`;
    this.#io.err(`${eraseLine}${what}${bar} ${detail}`);
  }

  /** Makes room for other text. */
  clear(): void {
    if (this.#shownAt === -Infinity) return;
    this.#shownAt = -Infinity;
    this.#io.err(eraseLine);
  }
}

function percent(share: number): string {
  return `${String(Math.floor(share * 100)).padStart(3)} %`;
}
