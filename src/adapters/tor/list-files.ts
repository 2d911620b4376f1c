import { fileStamp } from '../files/file-stamp.js';
import type { ExitSource } from './exit-source.js';

/** The sources that are files, and which of them have changed since they were last asked for. */
export class ListFiles {
  readonly #sources: readonly ExitSource[];
  readonly #stamps = new Map<string, string | null>();

  constructor(sources: readonly ExitSource[]) {
    this.#sources = sources;
  }

  /** Those that were replaced or written; at first all. */
  async changed(): Promise<ExitSource[]> {
    const changed: ExitSource[] = [];
    for (const source of this.#sources) {
      if (!('file' in source.location)) continue;
      const stamp = await fileStamp(source.location.file);
      if (this.#stamps.get(source.id) === stamp) continue;
      this.#stamps.set(source.id, stamp);
      changed.push(source);
    }
    return changed;
  }
}
