import type { Command, Redis } from 'ioredis';

/** If no data arrives for this long while a command waits for its reply, the connection is closed. */
const longestSilenceMilliseconds = 3_000;
const timeoutParts = 4;
const longestPartMilliseconds = 50;

/**
 * Rejects a command that gets no reply within the timeout, and closes a connection on which no data arrives after a
 * command. The options `commandTimeout` and `socketTimeout` of ioredis use one timer for the whole timeout: after a
 * stall of the process, that timer fires before Node reads a reply that has already arrived. Several shorter timers
 * leave Node time to read the reply. Must be called before the first command of the connection.
 */
export function timeOutCommands(redis: Redis, timeoutMilliseconds: number): void {
  const partMilliseconds = Math.min(timeoutMilliseconds / timeoutParts, longestPartMilliseconds);
  const maxChecks = Math.ceil(timeoutMilliseconds / partMilliseconds);
  const silence = new Silence(redis, Math.max(longestSilenceMilliseconds, timeoutMilliseconds), partMilliseconds);
  let waiting: { readonly command: Command; checks: number }[] = [];
  let isChecking = false;
  const check = (): void => {
    const unsettled = waiting.filter(({ command }) => !command.isSettled);
    waiting = [];
    for (const one of unsettled) {
      one.checks += 1;
      if (one.checks > maxChecks) one.command.reject(new Error('Command timed out'));
      else waiting.push(one);
    }
    silence.check(waiting.length > 0);
    isChecking = false;
    checkLater();
  };
  const checkLater = (): void => {
    if (isChecking || (waiting.length === 0 && !silence.isWatched)) return;
    isChecking = true;
    setTimeout(check, partMilliseconds);
  };
  const send = redis.sendCommand.bind(redis);
  const sendInTime: Redis['sendCommand'] = (command, stream) => {
    waiting.push({ command, checks: 0 });
    const sent = send(command, stream);
    if (!command.isSettled) silence.watch();
    checkLater();
    return sent;
  };
  redis.sendCommand = sendInTime;
}

/**
 * Closes a connection on which no data arrives after a command. Otherwise a silent loss of the server would go
 * unnoticed while the kernel retransmits for 15 minutes.
 */
class Silence {
  readonly #redis: Redis;
  readonly #milliseconds: number;
  readonly #maxChecks: number;
  /** The watched socket; null if data has arrived since the last command, and no command waits for its reply. */
  #stream: Redis['stream'] | null = null;
  #bytesRead = 0;
  #checks = 0;

  constructor(redis: Redis, milliseconds: number, partMilliseconds: number) {
    [this.#redis, this.#milliseconds] = [redis, milliseconds];
    this.#maxChecks = Math.ceil(milliseconds / partMilliseconds);
  }

  get isWatched(): boolean {
    return this.#stream !== null;
  }

  /** Watches the current socket for data. Must be called after each command that was sent. */
  watch(): void {
    const stream = this.#redis.stream as Redis['stream'] | undefined; // undefined before the first connection
    if (stream === undefined || (stream === this.#stream && stream.bytesRead === this.#bytesRead)) return;
    [this.#stream, this.#bytesRead, this.#checks] = [stream, stream.bytesRead, 0];
  }

  /**
   * Closes the connection if no data has arrived for too long. Ends the watch if data has arrived and no command waits.
   * @param isWaiting whether any command still waits for its reply
   */
  check(isWaiting: boolean): void {
    const stream = this.#stream;
    if (stream === null) return;
    this.#checks += 1;
    const hasRead = stream.bytesRead !== this.#bytesRead;
    if (hasRead && isWaiting && !stream.destroyed) {
      // Watch again from now on: the server may have replied to one of several commands and then hung.
      [this.#bytesRead, this.#checks] = [stream.bytesRead, 0];
      return;
    }
    const hasEnded = stream.destroyed || hasRead;
    if (!hasEnded && this.#checks <= this.#maxChecks) return;
    this.#stream = null;
    if (!hasEnded) stream.destroy(new Error(`no data arrived for ${this.#milliseconds} ms after a command`));
  }
}
