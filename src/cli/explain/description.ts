import { parseIpAddress } from '../../policy/ip-address.js';
import { holdsKey } from '../../telemetry/mask-keys.js';
import { idIn } from '../admin/arguments.js';
import { WrongUsage } from '../admin/peer.js';
import { momentOf } from '../audit/log-options.js';
import type { Description } from './described-request.js';
import type { KeySought } from './stored-record.js';

/** The options that describe a request, as they were given. */
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
 * Reads what is said of a request. What may be a key is not repeated.
 * @returns what it is, and whose key it has: null where none is named, `stdin` where it is to be read
 * @throws WrongUsage
 */
export function descriptionIn(options: DescriptionOptions): {
  readonly description: Description;
  readonly key: Exclude<KeySought, { key: string }> | 'stdin' | null;
} {
  const { method, path, header = [], address, plain, at } = options;
  if ([method, path, address, ...header].some((text) => text !== undefined && holdsKey(text))) {
    throw new WrongUsage('a key is never an argument: give --key-id, --merchant or --key-stdin');
  }
  if (method !== undefined && !methodForm.test(method)) throw new WrongUsage('--method must be one such as POST');
  if (path !== undefined && !pathForm.test(path)) throw new WrongUsage('--path must begin with / and be encoded');
  const parsed = address === undefined ? undefined : parseIpAddress(address);
  if (parsed === null) throw new WrongUsage('--address must be an IPv4 or IPv6 address, without a port');
  const moment = at === undefined ? undefined : momentOf(at);
  if (moment === null) throw new WrongUsage('--at must be a time such as 2026-11-20T10:00:00Z');
  return {
    description: {
      ...(method === undefined ? {} : { method }),
      ...(path === undefined ? {} : { path }),
      ...(parsed === undefined ? {} : { address: parsed }),
      ...(plain === undefined ? {} : { plain }),
      ...(moment === undefined ? {} : { at: moment }),
      header: header.map(headerIn),
    },
    key: keyIn(options),
  };
}

function keyIn({
  keyId,
  merchant,
  keyStdin,
}: DescriptionOptions): Exclude<KeySought, { key: string }> | 'stdin' | null {
  if ([keyId, merchant, keyStdin].filter((one) => one !== undefined).length > 1) {
    throw new WrongUsage('give one of --key-id, --merchant and --key-stdin');
  }
  if (keyStdin === true) return 'stdin';
  if (keyId !== undefined) return { keyId: idIn(keyId, 'key') };
  return merchant === undefined ? null : { merchantId: idIn(merchant, 'merchant') };
}

function headerIn(text: string): readonly [string, string] {
  const [, name, value] = headerForm.exec(text) ?? [];
  if (name === undefined || value === undefined) throw new WrongUsage("--header must be 'Name: value'");
  if (name.toLowerCase() !== 'x-api-key') return [name, value];
  throw new WrongUsage('a key is never an argument: give --key-id, --merchant or --key-stdin');
}
