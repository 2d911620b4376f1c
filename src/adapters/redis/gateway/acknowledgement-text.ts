import type { Acknowledgement } from '../gateway-records.js';
import type { AcknowledgementText } from '../records-link.js';
import type { Seals } from '../seal.js';
import type { BelievedState } from '../store-state.js';

/** Who acknowledges. */
export type GatewayIdentity = Pick<Acknowledgement, 'instanceId' | 'environment' | 'host' | 'startedAt' | 'version'>;

/** The registry removes a gateway that was silent for a lifetime; until then it has to see the acknowledgement. */
const lifetimesOfAcknowledgement = 3;
/** What the registry's former release waits longer than a gateway serves. */
const formerMarginMilliseconds = 5_500;

/** An acknowledgement as it is written. */
export function acknowledgementText(
  identity: GatewayIdentity,
  { generation, revision, replicas }: BelievedState,
  said: Required<Pick<Acknowledgement, 'beat' | 'lifetimeMilliseconds' | 'now'>> & Pick<Acknowledgement, 'leaving'>,
  name: string,
  seals: Seals,
): AcknowledgementText {
  const acknowledgement: Acknowledgement = { revision, generation, ...said, ...identity };
  const { lifetimeMilliseconds, leaving } = said;
  const granted = lifetimeMilliseconds * (leaving === true ? 1 : lifetimesOfAcknowledgement);
  // The former release waits for no gateway that has none, so it lives as long as something old might be served.
  const former = lifetimeMilliseconds + formerMarginMilliseconds;
  return {
    name,
    text: seals.seal(name, JSON.stringify(acknowledgement)),
    lifetimeMilliseconds: replicas === null ? former : granted,
  };
}
