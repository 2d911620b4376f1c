/** Over how many seconds a client's rate is measured. */
const windowSeconds = 5;

/**
 * Whether a client sends its body fast enough. Only seconds in which the client is waited for count: while its service takes
 * nothing, the client cannot send.
 */
export class BodyRate {
  readonly #bytesPerSecond: number;
  #seconds = 0;
  /** How many bytes had come when the window began. */
  #before: number;

  /** @param bytes how many had come before it is measured */
  constructor(bytesPerSecond: number, bytes: number) {
    this.#bytesPerSecond = bytesPerSecond;
    this.#before = bytes;
  }

  /**
   * Says whether too little has come; asked each second.
   * @param bytes how many have come by now
   * @param waitsForClient whether the next byte is the client's to send
   */
  isTooLow(bytes: number, waitsForClient: boolean): boolean {
    if (waitsForClient) this.#seconds += 1;
    if (this.#seconds < windowSeconds) return false;
    const isTooLow = bytes - this.#before < windowSeconds * this.#bytesPerSecond;
    this.#seconds = 0;
    this.#before = bytes;
    return isTooLow;
  }
}
