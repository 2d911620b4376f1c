/** Tells whether a file grows by more than one process appends to it. */
export class FileGrowth {
  /** What was in the file before anything of this process was. */
  #before: number;

  constructor(size: number) {
    this.#before = size;
  }

  /**
   * Looks at the file's size. A file that is shorter than it must be was cut (`copytruncate`), and is what it is now.
   * @param written what of this process was in the file when its size was asked for
   * @param handed what may have been in it when the answer came
   * @returns how many bytes in it are another's, each told once; never more than there are
   */
  foreignBytes(size: number, written: number, handed: number): number {
    if (size < this.#before + written) this.#before = size - written;
    const foreign = Math.max(0, size - this.#before - handed);
    this.#before += foreign;
    return foreign;
  }
}
