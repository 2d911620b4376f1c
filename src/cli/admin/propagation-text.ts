import type { Propagation } from '../../registry/propagation.js';
import { printable } from './printable.js';

/** How far a change has come, in words, and whether all gateways go by it. */
export interface PropagationText {
  readonly isEverywhere: boolean;
  readonly text: string;
}

/** Says where a change is in force, and where not yet. */
export function propagationText({ gateways, confirmed, pending, ...rest }: Propagation): PropagationText {
  const { milliseconds, projected = true } = rest;
  if (!projected) {
    return notYet(
      "Stored, but not yet written to the gateways' store: until it is, gateways go by the old record. The registry goes on trying.",
    );
  }
  if (gateways === null) {
    return notYet(
      "Stored and written to the gateways' store, but which gateways have confirmed could not be asked. See gateways list.",
    );
  }
  if (pending.length > 0) {
    const heading = `Stored, but in force only on ${confirmed} of ${plural(gateways)} after ${milliseconds} ms. Not confirmed:`;
    const told = pending.map(({ instanceId, host, staleUntil }) => {
      const until = staleUntil === null ? 'it gets the new one' : `${printable(staleUntil)} by the registry's clock`;
      return `  ${printable(instanceId)} (${printable(host)}) may use the old record until ${until}`;
    });
    return notYet([heading, ...told].join('\n'));
  }
  const text =
    gateways === 0
      ? "Stored and written to the gateways' store; no gateway that it concerns runs now."
      : `In force on ${confirmed} of ${plural(gateways)} after ${milliseconds} ms.`;
  return { isEverywhere: true, text };
}

function notYet(text: string): PropagationText {
  return { isEverywhere: false, text };
}

function plural(gateways: number): string {
  return gateways === 1 ? '1 gateway' : `${gateways} gateways`;
}
