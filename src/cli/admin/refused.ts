import { OperatorError } from '../../config/operator-error.js';
import { Check } from '../../typebox/typebox.js';
import { WrongUsage } from './access.js';
import { failureSchema } from './admin-answer.js';
import { printable } from './printable.js';
import { nextAfter } from './unreachable.js';

const longestText = 500;
const mostProblems = 100;

/** What to do about an answer of this status, where its message does not say that already. */
const advice: Readonly<Record<number, string>> = {
  400: 'Check what was given.',
  401: 'Check the token: --token-file, or MERCHANT_GATEWAY_TOKEN, must hold that of this registry.',
  404: 'Check the id (merchants list, keys list), and that --registry names a registry of this version.',
  503: 'Try again when what it needs is back.',
};

/** How the API asks for a confirmation, which this command line gives by an option. */
const confirmationForm = /send "confirm": \["([a-z_]+)"\] too if/;

/** Says why an answer is no success, what to do, and, for a change, whether it may have been made all the same. */
export function refused(address: string, response: Response, body: unknown, isChange: boolean): OperatorError {
  const { status } = response;
  if (status >= 300 && status < 400) {
    const target = response.headers.get('location');
    const to = target === null ? '' : ` to ${shown(target)}`;
    return new OperatorError(
      `${address} redirects (status ${status})${to}, which is not followed, so that the token goes nowhere else. Give the registry's own address with --registry.`,
    );
  }
  // The database, or what stands between, may have failed after the change and before the answer.
  const isUnclear = isChange && status >= 500;
  if (!Check(failureSchema, body)) return notARegistry(address, response, isUnclear);
  const { errors = [] } = body.data ?? {};
  if (errors.length > 0) {
    const count = errors.length === 1 ? '1 problem' : `${errors.length} problems`;
    const told = errors.slice(0, mostProblems).map(({ message }) => `  ${shown(inOptions(message))}`);
    return new OperatorError([`The registry did not accept this (${count}):`, ...told].join('\n'));
  }
  const message = shown(body.message).replace(/\.$/, '');
  const what = status >= 500 ? `The registry failed (status ${status})` : `The registry refused (status ${status})`;
  const next = isUnclear ? nextAfter(isChange) : advice[status];
  const why = status >= 500 && status !== 503 ? "The registry's log says why." : '';
  return new OperatorError([`${what}: ${message}.`, why, next ?? ''].filter((text) => text !== '').join(' '));
}

/**
 * Says that an answer is not that of a registry.
 * @param isUnclear for a change of which nobody knows whether it was made
 */
export function notARegistry(address: string, { status, headers }: Response, isUnclear: boolean): OperatorError {
  const type = headers.get('content-type') ?? 'no content type';
  const what = `${address} did not answer as a registry of this version does (status ${status}, ${shown(type)}).`;
  const next = isUnclear ? ` ${nextAfter(isUnclear)}` : '';
  return new OperatorError(`${what} Check --registry, and what stands between.${next}`);
}

/** By which options the parameters of a query are given, where their names differ. */
const optionNames: Readonly<Record<string, string>> = { name: 'search', merchantId: 'merchant' };

/** Says what is wrong with the query of a list, in the names of options; null: the answer is about something else. */
export function wrongFilter({ status }: Response, body: unknown, query: object): WrongUsage | null {
  if (status !== 422 || !Check(failureSchema, body)) return null;
  const told = (body.data?.errors ?? []).slice(0, mostProblems).map(({ message }) => {
    const [name = '', ...rest] = shown(message).split(' ');
    const option = optionNames[name] ?? name.replaceAll(/_?([A-Z])|_/g, (_, letter?: string) => `-${letter ?? ''}`);
    return name in query ? [`--${option.toLowerCase()}`, ...rest].join(' ') : shown(message);
  });
  return told.length === 0 ? null : new WrongUsage(told.join('\n'));
}

function inOptions(message: string): string {
  return message.replace(confirmationForm, (_, flag: string) => `add --confirm ${flag} if`);
}

function shown(text: string): string {
  return printable(text.slice(0, longestText));
}
