import net from 'node:net';
import tls from 'node:tls';
import type { HostAndPort } from '../connection.js';

const probeMilliseconds = 1_500;

/** Whose server could not be reached or used, by the option that says so. */
export interface Whose {
  /** `Redis at 10.0.0.1:6379`. */
  readonly what: string;
  readonly at: HostAndPort;
  readonly isSecure: boolean;
  /** The options to look at. */
  readonly options: { readonly place: string; readonly password: string; readonly secure: string };
}

/** What is wrong, and the option to look at. */
export interface Fault {
  readonly option: string;
  readonly message: string;
}

const networkReasons: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'nothing listens there: start it, or correct host and port',
  ENOTFOUND: 'nothing has that name: correct the host',
  EAI_AGAIN: 'its name cannot be looked up now: check the name server',
  EHOSTUNREACH: 'it cannot be reached: check host and network',
  ENETUNREACH: 'it cannot be reached: check host and network',
};

/** Why a server could not be connected to, or closed the connection at the first command. */
export async function explainConnection(error: unknown, whose: Whose): Promise<Fault> {
  const { what, at, isSecure, options } = whose;
  const { code = '', message } = error as NodeJS.ErrnoException;
  const reason = networkReasons[code];
  if (reason !== undefined) return { option: options.place, message: `${what}: ${reason} (${code})` };
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID')
    return {
      option: options.place,
      message: `${what}: its certificate is for another name; write a host that it names, or give it another certificate`,
    };
  if (/^(?:CERT_HAS_EXPIRED|CERT_NOT_YET_VALID)$/.test(code))
    return {
      option: options.secure,
      message: `${what}: its certificate has expired or is not valid yet; renew it (${code})`,
    };
  if (/CERT|ISSUER|SIGNATURE|SELF_SIGNED/.test(code))
    return {
      option: 'keyStore.redis.caFile',
      message: `${what}: its certificate is not signed by an authority that is trusted; name the right one (${code})`,
    };
  if (isSecure && (await speaksPlain(at)))
    return {
      option: options.secure,
      message: `${what} speaks without TLS, and TLS is configured: ${plainRemedy(options.secure)}`,
    };
  if (!isSecure && (await speaksTls(at)))
    return {
      option: options.secure,
      message: `${what} speaks TLS, and none is configured: ${secureRemedy(options.secure)}`,
    };
  return {
    option: options.place,
    message: `${what} does not answer: check host, port and firewall (${code || message})`,
  };
}

function plainRemedy(option: string): string {
  return option.endsWith('.tls')
    ? 'set false, or its TLS port'
    : 'write redis:// in place of rediss://, or its TLS port';
}

function secureRemedy(option: string): string {
  return option.endsWith('.tls')
    ? 'set true, or its plain port'
    : 'write rediss:// in place of redis://, or its plain port';
}

/** What a refused password or its absence means. Null: the failure has another reason. */
export function explainRefusal(
  error: unknown,
  { what, options: { password } }: Whose,
  hasPassword: boolean,
): Fault | null {
  const { message } = error as Error;
  if (message.startsWith('WRONGPASS') || /invalid password/i.test(message))
    return { option: password, message: `${what} refuses the user or the password (WRONGPASS): correct them` };
  if (message.startsWith('NOAUTH'))
    return { option: password, message: `${what} asks for a password (NOAUTH): name the file that has it` };
  if (message.startsWith('DENIED'))
    return {
      option: password,
      message: `${what} takes no connection from here before it has a password (protected mode)`,
    };
  if (hasPassword && message.includes('without any password configured'))
    return {
      option: password,
      message: `${what} has no password, and anybody who reaches it can write to it: give it one (requirepass or ACL)`,
    };
  return null;
}

function speaksPlain(at: HostAndPort): Promise<boolean> {
  return answers(net.connect(at), 'connect', (socket, tell) => {
    socket.write('PING\r\n');
    socket.once('data', (data) => {
      tell(/^[+-]/.test(data.toString('latin1')));
    });
  });
}

function speaksTls(at: HostAndPort): Promise<boolean> {
  // Nothing is sent: only whether it is TLS counts, not whose.
  return answers(tls.connect({ ...at, rejectUnauthorized: false }), 'secureConnect', (_socket, tell) => {
    tell(true);
  });
}

function answers(
  socket: net.Socket,
  event: string,
  ask: (socket: net.Socket, tell: (answer: boolean) => void) => void,
): Promise<boolean> {
  return new Promise((resolve) => {
    const tell = (answer: boolean): void => {
      socket.destroy();
      resolve(answer);
    };
    const fail = (): void => {
      tell(false);
    };
    socket.setTimeout(probeMilliseconds, fail).on('error', fail).on('close', fail);
    socket.once(event, () => {
      ask(socket, tell);
    });
  });
}
