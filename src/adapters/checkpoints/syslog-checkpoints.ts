import { once } from 'node:events';
import net from 'node:net';
import tls from 'node:tls';
import { connectionProblem } from './connection-problem.js';

/**
 * Options of a syslog server that stores checkpoints. A checkpoint is a line with which an auditor can detect later
 * changes of the audit log.
 */
export interface SyslogCheckpointsOptions {
  /**
   * `tls://host:port` (RFC 5425), or `tcp://host:port` (RFC 6587, octet counting) for a log forwarder on this machine.
   */
  readonly url: string;
  /** PEM of the CA that signed the server's certificate; null: the CAs that Node trusts. */
  readonly ca: Buffer | null;
  /** The HOSTNAME field of each message (RFC 5424). */
  readonly hostname: string;
  /** The clock, in milliseconds since 1970. */
  readonly now: () => number;
  /** Timeout for connecting and sending, in milliseconds; default ten seconds. */
  readonly timeoutMilliseconds?: number;
}

const defaultTimeoutMilliseconds = 10_000;
const defaultPorts: Readonly<Record<string, number>> = { 'tls:': 6514, 'tcp:': 601 };
/** The PRI value of RFC 5424: facility 13 (log audit) times 8, plus severity 5 (notice). */
const priority = 13 * 8 + 5;

/**
 * Sends each checkpoint of the audit log to a syslog server, as an RFC 5424 message. Syslog has no acknowledgement, so
 * a message counts as stored once the kernel has accepted all of it. If a checkpoint is lost, the next checkpoint also
 * covers the log lines of the lost one.
 */
export class SyslogCheckpoints {
  readonly name: string;
  readonly #options: SyslogCheckpointsOptions;
  readonly #url: URL;
  #socket: net.Socket | null = null;
  readonly #closing = new AbortController();

  constructor(options: SyslogCheckpointsOptions) {
    [this.#options, this.name, this.#url] = [options, options.url, new URL(options.url)];
  }

  /**
   * Sends one checkpoint. Never rejects.
   * @param line one line of JSON
   * @returns why the checkpoint was not sent, for an operator; null if it was sent
   */
  async keep(line: string): Promise<string | null> {
    const { timeoutMilliseconds = defaultTimeoutMilliseconds } = this.#options;
    const signal = AbortSignal.any([AbortSignal.timeout(timeoutMilliseconds), this.#closing.signal]);
    try {
      this.#socket ??= await this.#connect(signal);
      await send(this.#socket, this.#messageOf(line), signal);
      return null;
    } catch (error) {
      this.#socket?.destroy();
      this.#socket = null;
      return `the server cannot be reached: ${connectionProblem(error)}`;
    }
  }

  /** Closes the connection after pending data is sent. Aborts a pending `keep`. */
  close(): Promise<void> {
    this.#closing.abort();
    this.#socket?.end().unref();
    this.#socket = null;
    return Promise.resolve();
  }

  async #connect(signal: AbortSignal): Promise<net.Socket> {
    const { hostname, port, protocol } = this.#url;
    const { ca } = this.#options;
    const host = hostname.replace(/^\[(.*)\]$/, '$1');
    const at = { host, port: port === '' ? defaultPorts[protocol] : Number(port) };
    const isTls = protocol === 'tls:';
    const socket = isTls
      ? tls.connect({ ...at, ...(ca === null ? {} : { ca }) })
      : net.connect(at as net.NetConnectOpts);
    // Without a listener, a later socket error would end the process. The listener can ignore the error, because the
    // next checkpoint opens a new socket.
    socket.on('error', () => undefined);
    socket.once('close', () => {
      if (this.#socket === socket) this.#socket = null;
    });
    try {
      await once(socket, isTls ? 'secureConnect' : 'connect', { signal });
    } catch (error) {
      socket.destroy();
      throw error;
    }
    // Read and discard incoming data. While a socket is not read, Node does not notice that the server has closed the
    // connection.
    return socket.resume();
  }

  /** Formats an RFC 5424 message without structured data, preceded by its length (octet counting, RFC 5425). */
  #messageOf(line: string): string {
    const { hostname, now } = this.#options;
    const message = `<${priority}>1 ${new Date(now()).toISOString()} ${hostname} merchant-gateway ${process.pid} checkpoint - ${line}`;
    return `${Buffer.byteLength(message)} ${message}`;
  }
}

function send(socket: net.Socket, text: string, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal.addEventListener('abort', () => {
      reject(signal.reason as Error);
    });
    socket.write(text, (error) => {
      if (error) reject(error);
      else resolve();
    });
  });
}
