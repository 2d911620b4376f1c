/** No head of an answer here is longer. */
const mostHeadBytes = 4096;
const lastChunk = '0\r\n\r\n';

/** Reads the answers of a connection, one at a time: as much HTTP as tells where each ends. */
export class AnswerReader {
  #head = '';
  #status = 0;
  /** Bytes of the body that are to come; null: it is chunked. */
  #missing: number | null = 0;
  #inBody = false;
  #tail = '';

  /** Takes what has come, and gives the status of the answer that is whole with it; null until one is. */
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
