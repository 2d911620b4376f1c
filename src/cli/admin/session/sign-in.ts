import { setTimeout as wait } from 'node:timers/promises';
import { Command } from 'commander';
import { OperatorError } from '../../../config/operator-error.js';
import Type from '../../../typebox/typebox.js';
import type { CommandIo } from '../../command-io.js';
import { targetOf } from '../access.js';
import { administer, printers } from '../admin-call.js';
import { AdminClient, type ApiTarget } from '../admin-client.js';
import { type Environment, registryPeer } from '../peer.js';
import { printable } from '../printable.js';
import { askSignIn, readOwnSession, sessionData, sessionToken, storeSession } from './session-token.js';
import { deleteSession, sessionFileOf } from './session-file.js';

interface SignInCommandOptions {
  readonly registry?: string;
  readonly tokenFile?: string;
  readonly caFile?: string;
  readonly config?: string;
  readonly json?: true;
}

const deviceData = Type.Object({
  handle: Type.String(),
  verificationUri: Type.String(),
  verificationUriComplete: Type.Union([Type.String(), Type.Null()]),
  userCode: Type.String(),
  intervalSeconds: Type.Integer(),
  expiresInSeconds: Type.Integer(),
});

/**
 * Creates the command `login`.
 * @param pause waits before each request that asks the registry whether the user has signed in
 */
export function loginCommand(
  io: CommandIo,
  env: Environment = process.env,
  pause: (milliseconds: number) => Promise<unknown> = wait,
): Command {
  const command = new Command('login').description('sign in to the registry with the OpenID provider');
  return withSession(command, env, async ({ target, file, isJson }) => {
    const begun = await askSignIn(target, 'device', null, deviceData);
    if (!('data' in begun)) throw new OperatorError(`${begun.message}.`);
    const { handle, verificationUri, verificationUriComplete, userCode, expiresInSeconds } = begun.data;
    io.err(`Open ${printable(verificationUri)} in a browser and enter the code ${printable(userCode)}.\n`);
    if (verificationUriComplete !== null) io.err(`Or open ${printable(verificationUriComplete)}\n`);
    const minutes = Math.ceil(expiresInSeconds / 60);
    io.err(`Waiting for the sign-in, at most ${minutes} ${minutes === 1 ? 'minute' : 'minutes'} …\n`);
    let seconds = begun.data.intervalSeconds;
    for (let waited = 0; waited <= expiresInSeconds; waited += seconds) {
      await pause(seconds * 1000);
      const result = await askSignIn(target, 'token', { handle }, sessionData);
      if ('data' in result) {
        const { expiresAt, name, roles } = result.data;
        await storeSession(file, target, result.data, Date.now);
        const { show } = printers(io, isJson);
        show({ name, roles, expiresAt, tokenFile: file }, [`Signed in as ${name} (${roles.join(', ')}).`]);
        return;
      }
      if (result.code === 'slow_down') seconds += 1;
      else if (result.code === 'provider_unavailable') io.err(`${printable(result.message)}. Still waiting …\n`);
      else if (result.code !== 'authorization_pending') throw new OperatorError(`${result.message}.`);
    }
    throw new OperatorError('The code has expired: sign in again.');
  });
}

/** Creates the command `logout`. */
export function logoutCommand(io: CommandIo, env: Environment = process.env): Command {
  const command = new Command('logout').description('end the sign-in, and delete its token file');
  return withSession(command, env, async ({ target, file, isJson }) => {
    const session = await readOwnSession(file, target);
    const { show } = printers(io, isJson);
    if (session === null) {
      show({ wasSignedIn: false }, ['Not signed in.']);
      return;
    }
    try {
      // Refresh an expired session first, because only a valid session can end the sign-in at the registry.
      const token = await sessionToken(file, target, Date.now);
      const client = new AdminClient({ ...target, token: token ?? session.token });
      await client.ask({ method: 'POST', path: ['sign-in', 'out'], isRepeatable: true, expects: Type.Null() });
    } finally {
      await deleteSession(file);
    }
    show({ wasSignedIn: true }, ['Signed out.']);
  });
}

const identity = Type.Object({
  name: Type.String(),
  roles: Type.Array(Type.String()),
  proof: Type.String(),
  merchantId: Type.Union([Type.String(), Type.Null()]),
  expiresAt: Type.Union([Type.String(), Type.Null()]),
});

/** Creates the command `whoami`. */
export function whoamiCommand(io: CommandIo, env: Environment = process.env): Command {
  const command = new Command('whoami').description('show your name and your roles at the registry');
  administer(command, { io, env }, async ({ client, show }) => {
    const { data } = await client.ask({ method: 'GET', path: ['me'], expects: identity });
    show(data, [
      `name: ${data.name}`,
      `roles: ${data.roles.join(', ')}`,
      ...(data.merchantId === null ? [] : [`merchant: ${data.merchantId}`]),
      `proof: ${data.proof}`,
      `expires: ${data.expiresAt ?? 'never'}`,
    ]);
  });
  return command;
}

interface SessionPlace {
  readonly target: ApiTarget;
  readonly file: string;
  readonly isJson: boolean;
}

function withSession(command: Command, env: Environment, act: (place: SessionPlace) => Promise<void>): Command {
  return command
    .option('--registry <url>', 'address of the admin API (or MERCHANT_GATEWAY_REGISTRY)')
    .option(
      '--token-file <file>',
      'file for the token (default: one file per registry, below XDG_CONFIG_HOME or ~/.config)',
    )
    .option('--ca-file <file>', 'PEM file with the CA certificate for an https address (or MERCHANT_GATEWAY_CA_FILE)')
    .option('--config <file>', 'configuration file that has the address of the registry in registry.listen')
    .option('--json', 'print only the data, as JSON')
    .action(async () => {
      const { registry, tokenFile, caFile, config, json } = command.opts<SignInCommandOptions>();
      const target = await targetOf({ address: registry, caFile, config }, env, registryPeer);
      await act({ target, file: tokenFile ?? sessionFileOf(target.address, env), isJson: json === true });
    });
}
