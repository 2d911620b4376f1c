import dns from 'node:dns';
import type { LookupFunction } from 'node:net';

type Told = Parameters<LookupFunction>[2];

/** Asks for a name once at a time, however many connect: the few look-ups that run at once may all hang for one name. */
export function shareLookups(lookup: LookupFunction): LookupFunction {
  const asking = new Map<string, Told[]>();
  return (hostname, options, callback) => {
    const { family, hints, all, order, verbatim } = options;
    const question = JSON.stringify([hostname, family, hints, all, order, verbatim]);
    const others = asking.get(question);
    if (others !== undefined) {
      others.push(callback);
      return;
    }
    const told = [callback];
    asking.set(question, told);
    lookup(hostname, options, (...answer) => {
      asking.delete(question);
      for (const each of told) each(...answer);
    });
  };
}

/** The look-ups of this process for upstreams. */
export const sharedLookup = shareLookups((hostname, options, callback) => {
  dns.lookup(hostname, options, (error, address, family) => {
    callback(error, address, family);
  });
});
