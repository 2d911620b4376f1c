import { dayMilliseconds, hourMilliseconds, type KeyUsage } from '../../src/usage/batch.js';

/** Requests of a key in a batch. */
export interface GivenRequests {
  readonly at: number;
  readonly count?: number;
  readonly code?: string;
  readonly address?: string;
  readonly country?: string | null;
  readonly asNumber?: number | null;
  readonly agent?: string;
}

/** Returns the usage of one key in one batch, with the rows in which a gateway counts these requests. */
export function keyUsage(
  keyId: string | null,
  requests: readonly GivenRequests[],
  lookupId: string | null = null,
): KeyUsage {
  const usage: KeyUsage = {
    ...{ keyId, merchantId: keyId === null ? null : 'm', lookupId, lastUse: null },
    ...{ codes: [], addresses: [], agents: [] },
  };
  for (const given of requests) {
    const { at, count = 1, code = 'accepted', address = '203.0.113.7', country = 'NG', asNumber = 64_500 } = given;
    const { agent = 'axios/1.7' } = given;
    const day = at - (at % dayMilliseconds);
    const zeros = { totalMilliseconds: 0, slowestMilliseconds: 0, requestBytes: 0, responseBytes: 0 };
    usage.codes.push({ hour: at - (at % hourMilliseconds), code, count, ...zeros });
    const isAccepted = code === 'accepted';
    const counts = { accepted: isAccepted ? count : 0, refused: isAccepted ? 0 : count };
    usage.addresses.push({ day, address, country, asNumber, ...counts, firstAt: at, lastAt: at });
    if (!isAccepted) continue;
    usage.agents.push({ day, agent, count });
    usage.lastUse = { at, address, country };
  }
  return usage;
}
