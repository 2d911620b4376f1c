import { parseIpAddress } from '../../policy/ip-address.js';
import type { IpAddress } from '../../policy/ip-address.js';
import Type, { Compile } from '../../typebox/typebox.js';
import { ExitListRefused } from './exit-list-refused.js';

/** The part of Onionoo's details that matters; all else in it is ignored. */
const details = Compile(
  Type.Object({
    relays: Type.Array(
      Type.Object({
        flags: Type.Array(Type.String({ maxLength: 64 }), { maxItems: 64 }),
        or_addresses: Type.Array(Type.String({ maxLength: 64 }), { maxItems: 64 }),
        exit_addresses: Type.Optional(Type.Array(Type.String({ maxLength: 64 }), { maxItems: 1024 })),
      }),
    ),
  }),
);

/** `192.0.2.1:9001` or `[2001:db8::1]:9001`. */
const orAddress = /^(?:\[(?<ipv6>[^\]]+)\]|(?<ipv4>[^:]+)):\d{1,5}$/;

/**
 * The addresses of the relays with the flag Exit: those that they listen on, which are the only ones to tell of IPv6, and
 * those that they were seen to leave by. Other relays carry nobody out of Tor, and may be anybody's home.
 */
export function* addressesInOnionooDetails(text: string): Generator<IpAddress> {
  for (const [index, { flags, or_addresses, exit_addresses = [] }] of parse(text).relays.entries()) {
    if (!flags.includes('Exit')) continue;
    for (const listening of or_addresses) {
      const { ipv4, ipv6 } = orAddress.exec(listening)?.groups ?? {};
      yield addressIn(ipv6 ?? ipv4 ?? '', index);
    }
    for (const leaving of exit_addresses) yield addressIn(leaving, index);
  }
}

function addressIn(text: string, relay: number): IpAddress {
  const address = parseIpAddress(text);
  if (address === null) throw new ExitListRefused('malformed', `relay ${relay + 1} has an address that is none`);
  return address;
}

function parse(text: string) {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new ExitListRefused('malformed', 'it begins as JSON and is none: it may have been cut off', { cause: error });
  }
  if (details.Check(value)) return value;
  throw new ExitListRefused(
    'malformed',
    "it is JSON, but not Onionoo's details: expected relays, each with flags and or_addresses",
  );
}
