import { parseIpAddress } from '../../policy/ip-address.js';
import { containsKey } from '../../telemetry/mask-keys.js';
import { idIn } from '../admin/arguments.js';
import { WrongUsage } from '../admin/peer.js';
import { parseTime } from '../audit/log-options.js';
import type { Description } from './described-request.js';
import type { KeySought } from './stored-record.js';

/** The options that describe a request, before they are parsed. */
export interface DescriptionOptions {
  readonly keyId?: string;
  readonly merchant?: string;
  readonly keyStdin?: true;
  readonly address?: string;
  readonly plain?: true;
  readonly method?: string;
  readonly path?: string;
  readonly header?: readonly string[];
  readonly at?: string;
}

const headerForm = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\u0000-\u0008\u000a-\u001f\u007f]*?)[ \t]*$/;
const methodForm = /^[A-Z]{1,32}$/;
const pathForm = /^\/[!-~]*$/;

/**
 * Parses the options that describe a request. Errors do not repeat values that could be API keys.
 * @returns the description, and how the API key is given; `key` is null if no key is given, and `stdin` if standard
 *   input contains the key
 * @throws WrongUsage
 */
export function descriptionIn(options: DescriptionOptions): {
  readonly description: Description;
  readonly key: Exclude<KeySought, { key: string }> | 'stdin' | null;
} {
  const { method, path, header = [], address, plain, at } = options;
  if ([method, path, address, ...header].some((text) => text !== undefined && containsKey(text))) {
    throw new WrongUsage('an API key must not be an argument: use --key-id, --merchant or --key-stdin instead');
  }
  if (method !== undefined && !methodForm.test(method))
    throw new WrongUsage('--method must be a method in upper case, such as POST');
  if (path !== undefined && !pathForm.test(path))
    throw new WrongUsage('--path must begin with / and be percent-encoded');
  const parsed = address === undefined ? undefined : parseIpAddress(address);
  if (parsed === null) throw new WrongUsage('--address must be an IPv4 or IPv6 address, without a port');
  const moment = at === undefined ? undefined : parseTime(at);
  if (moment === null) throw new WrongUsage('--at must be a time such as 2026-11-20T10:00:00Z');
  return {
    description: { method, path, header: header.map(headerIn), address: parsed, plain, at: moment },
    key: keyIn(options),
  };
}

function keyIn({
  keyId,
  merchant,
  keyStdin,
}: DescriptionOptions): Exclude<KeySought, { key: string }> | 'stdin' | null {
  if ([keyId, merchant, keyStdin].filter((one) => one !== undefined).length > 1) {
    throw new WrongUsage('give only one of --key-id, --merchant and --key-stdin');
  }
  if (keyStdin === true) return 'stdin';
  if (keyId !== undefined) return { keyId: idIn(keyId, 'key') };
  return merchant === undefined ? null : { merchantId: idIn(merchant, 'merchant') };
}

function headerIn(text: string): readonly [string, string] {
  const [, name, value] = headerForm.exec(text) ?? [];
  if (name === undefined || value === undefined) throw new WrongUsage("--header must be 'Name: value'");
  if (name.toLowerCase() !== 'x-api-key') return [name, value];
  throw new WrongUsage('an API key must not be an argument: use --key-id, --merchant or --key-stdin instead');
}
