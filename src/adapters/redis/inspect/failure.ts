import net from 'node:net';
import tls from 'node:tls';
import type { HostAndPort } from '../connection.js';

const probeMilliseconds = 5_000;

/** The server that is inspected, and the names of the options that configure it. */
export interface InspectedServer {
  /** The server in words, such as `Redis at 10.0.0.1:6379`. */
  readonly what: string;
  readonly at: HostAndPort;
  readonly isSecure: boolean;
  /** Names of the options that could be wrong. */
  readonly options: { readonly place: string; readonly password: string; readonly secure: string };
}

/** A problem, and the option that causes it. */
export interface Fault {
  readonly option: string;
  readonly message: string;
}

const networkReasons: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'refused the connection: start the server, or correct host and port',
  ENOTFOUND: 'has an unknown host name: correct the host',
  EAI_AGAIN: 'cannot be found, because the DNS lookup failed: check the DNS server',
  EHOSTUNREACH: 'is unreachable: check host and network',
  ENETUNREACH: 'is unreachable: check host and network',
};

/** Explains why a connection failed, or was closed at the first command. */
export async function explainConnection(error: unknown, whose: InspectedServer): Promise<Fault> {
  const { what, at, isSecure, options } = whose;
  const { code = '', message } = error as NodeJS.ErrnoException;
  const reason = networkReasons[code];
  if (reason !== undefined) return { option: options.place, message: `${what} ${reason} (${code})` };
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID')
    return {
      option: options.place,
      message: `the certificate of ${what} is for another host name; configure a host that the certificate names, or replace the certificate`,
    };
  if (/^(?:CERT_HAS_EXPIRED|CERT_NOT_YET_VALID)$/.test(code))
    return {
      option: options.secure,
      message: `the certificate of ${what} ${code === 'CERT_HAS_EXPIRED' ? 'has expired: renew it' : 'is not valid yet: replace it'}, or correct the clock of this machine (${code})`,
    };
  if (/CERT|ISSUER|SIGNATURE|SELF_SIGNED/.test(code))
    return {
      option: 'keyStore.redis.caFile',
      message: `the certificate of ${what} is not signed by a trusted CA; configure the file of its CA (${code})`,
    };
  if (isSecure && (await speaksPlain(at)))
    return {
      option: options.secure,
      message: `${what} does not use TLS, but TLS is configured: ${plainRemedy(options.secure)}`,
    };
  if (!isSecure && (await speaksTls(at)))
    return {
      option: options.secure,
      message: `${what} uses TLS, but TLS is not configured: ${secureRemedy(options.secure)}`,
    };
  return {
    option: options.place,
    message: `${what} does not respond: check host, port and firewall (${code || message})`,
  };
}

function plainRemedy(option: string): string {
  return option.endsWith('.tls')
    ? `set ${option} to false, or use the TLS port`
    : 'write redis:// instead of rediss://, or use the TLS port';
}

function secureRemedy(option: string): string {
  return option.endsWith('.tls')
    ? `set ${option} to true, or configure the port without TLS`
    : 'write rediss:// instead of redis://, or use the port without TLS';
}

/** Explains an error reply about the password; null if the error has another cause. */
export function explainRefusal(
  error: unknown,
  { what, options: { password } }: InspectedServer,
  hasPassword: boolean,
): Fault | null {
  const { message } = error as Error;
  if (message.startsWith('WRONGPASS') || /invalid password/i.test(message))
    return { option: password, message: `${what} refuses the user or the password (WRONGPASS): correct them` };
  if (message.startsWith('NOAUTH'))
    return { option: password, message: `${what} requires a password (NOAUTH): configure a file with the password` };
  if (message.startsWith('DENIED'))
    return {
      option: password,
      message: `${what} refuses connections from this host (protected mode): set a password on the server`,
    };
  if (hasPassword && message.includes('without any password configured'))
    return {
      option: password,
      message: `${what} has no password, so any client that reaches it can write to it: set a password (requirepass or ACL)`,
    };
  return null;
}

function speaksPlain(at: HostAndPort): Promise<boolean> {
  return probe(net.connect(at), 'connect', (socket, report) => {
    socket.write('PING\r\n');
    socket.once('data', (data) => {
      report(/^[+-]/.test(data.toString('latin1')));
    });
  });
}

function speaksTls(at: HostAndPort): Promise<boolean> {
  // The certificate is not verified, because only the use of TLS is tested and no data is sent.
  return probe(tls.connect({ ...at, rejectUnauthorized: false }), 'secureConnect', (_socket, report) => {
    report(true);
  });
}

function probe(
  socket: net.Socket,
  event: string,
  ask: (socket: net.Socket, report: (result: boolean) => void) => void,
): Promise<boolean> {
  return new Promise((resolve) => {
    const report = (result: boolean): void => {
      socket.destroy();
      resolve(result);
    };
    const fail = (): void => {
      report(false);
    };
    socket.setTimeout(probeMilliseconds, fail).on('error', fail).on('close', fail);
    socket.once(event, () => {
      ask(socket, report);
    });
  });
}
