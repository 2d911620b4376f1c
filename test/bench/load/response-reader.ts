/** Maximum length of a response head, in bytes. No response in these benchmarks has a longer head. */
const mostHeadBytes = 4096;
const lastChunk = '0\r\n\r\n';

/** Parses the responses of a connection one at a time: only as much HTTP as needed to find the end of each response. */
export class ResponseReader {
  #head = '';
  #status = 0;
  /** Missing bytes of the body; null: chunked. */
  #missing: number | null = 0;
  #inBody = false;
  #tail = '';

  /** Consumes received bytes; returns the status of a response that is now complete, otherwise null. */
  take(chunk: Buffer): number | null {
    if (this.#inBody) return this.#takeBody(chunk, 0);
    const before = this.#head.length;
    this.#head += chunk.toString('latin1', 0, mostHeadBytes);
    const end = this.#head.indexOf('\r\n\r\n');
    if (end === -1) return null;
    const head = this.#head.slice(0, end + 2);
    this.#head = '';
    this.#status = Number(head.slice(9, 12));
    const length = /\r\ncontent-length: *(\d+)\r/i.exec(head)?.[1];
    this.#missing = length === undefined ? null : Number(length);
    if (length === undefined && !/\r\ntransfer-encoding: *chunked\r/i.test(head)) {
      throw new Error(`an answer without a length: ${head}`);
    }
    this.#inBody = true;
    return this.#takeBody(chunk, end + 4 - before);
  }

  #takeBody(chunk: Buffer, from: number): number | null {
    if (this.#missing === null) {
      this.#tail = (this.#tail + chunk.toString('latin1', Math.max(from, chunk.length - 5))).slice(-5);
      if (this.#tail !== lastChunk) return null;
      this.#tail = '';
    } else {
      this.#missing -= chunk.length - from;
      if (this.#missing > 0) return null;
    }
    this.#inBody = false;
    return this.#status;
  }
}
