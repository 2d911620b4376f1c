import type { Acknowledgement } from '../gateway-records.js';
import type { AcknowledgementText } from '../records-link.js';
import type { Seals } from '../seal.js';
import type { BelievedState } from '../store-state.js';

/** The gateway that acknowledges. */
export type GatewayIdentity = Pick<Acknowledgement, 'instanceId' | 'environment' | 'host' | 'startedAt' | 'version'>;

/** The registry removes a gateway that was silent for one lifetime, and needs its acknowledgement until then. */
const lifetimesOfAcknowledgement = 3;
/** An earlier release of the registry waits this much longer than a gateway serves stale records. */
const formerMarginMilliseconds = 5_500;

/** An acknowledgement as it is stored in Redis. */
export function acknowledgementText(
  identity: GatewayIdentity,
  { generation, revision, replicas }: BelievedState,
  reported: Required<Pick<Acknowledgement, 'beat' | 'lifetimeMilliseconds' | 'now'>> & Pick<Acknowledgement, 'leaving'>,
  name: string,
  seals: Seals,
): AcknowledgementText {
  const acknowledgement: Acknowledgement = { revision, generation, ...reported, ...identity };
  const { lifetimeMilliseconds, leaving } = reported;
  const granted = lifetimeMilliseconds * (leaving === true ? 1 : lifetimesOfAcknowledgement);
  // An earlier release does not wait for a gateway without an acknowledgement, so it must outlive every stale record.
  const former = lifetimeMilliseconds + formerMarginMilliseconds;
  return {
    name,
    text: seals.seal(name, JSON.stringify(acknowledgement)),
    lifetimeMilliseconds: replicas === null ? former : granted,
  };
}
