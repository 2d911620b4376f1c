import type { ReactNode } from 'react';
import type { CreatedKey, Propagation } from '../api';
import { CommandLine } from '../elements';
import { SecretOnce } from '../shown-once';
import { texts } from '../texts';

/** Shows on how many gateways a change is in force, and which have not confirmed it yet. */
export function InForce({ propagation }: { readonly propagation: Propagation }): ReactNode {
  const { gateways, confirmed, pending, milliseconds, projected } = propagation;
  if (projected === false || gateways === null) {
    return (
      <p role="alert" className="problem">
        {texts.inForce.notProjected}
      </p>
    );
  }
  if (pending.length === 0) {
    return (
      <p role="status" className="good">
        {gateways === 0 ? texts.inForce.noGateway : texts.inForce.all(gateways, milliseconds)}
      </p>
    );
  }
  return (
    <div role="status">
      <p>{texts.inForce.some(confirmed, gateways)}</p>
      <ul>
        {pending.map(({ instanceId, host, staleUntil }) => (
          <li key={instanceId}>
            {texts.inForce.pending(
              host,
              staleUntil === null
                ? null
                : new Intl.DateTimeFormat(undefined, { timeStyle: 'medium' }).format(new Date(staleUntil)),
            )}
          </li>
        ))}
      </ul>
    </div>
  );
}

/** Shows a new API key, which cannot be shown again. */
export function ShownOnce({
  created: { key, propagation },
  onClose,
}: {
  readonly created: CreatedKey;
  readonly onClose: () => void;
}): ReactNode {
  return (
    <SecretOnce secret={key} words={texts.once} onClose={onClose}>
      <h3>{texts.once.env}</h3>
      <CommandLine>{`SVC_API_KEY=${key}`}</CommandLine>
      <InForce propagation={propagation} />
    </SecretOnce>
  );
}
