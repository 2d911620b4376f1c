import { type ReactNode, useRef, useState } from 'react';
import type { CreatedKey, Propagation } from '../api';
import { CommandLine, Dialog, Field, focusNow } from '../elements';
import { texts } from '../texts';

/** On which gateways a change is in force. */
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
                ? texts.unknown
                : new Intl.DateTimeFormat(undefined, { timeStyle: 'medium' }).format(new Date(staleUntil)),
            )}
          </li>
        ))}
      </ul>
    </div>
  );
}

/** A new key. Only this component's state has it: it is gone when the dialog closes. */
export function ShownOnce({
  created,
  onClose,
}: {
  readonly created: CreatedKey;
  readonly onClose: () => void;
}): ReactNode {
  const { key, propagation } = created;
  const [isCopied, setIsCopied] = useState(false);
  const [isWarned, setIsWarned] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const copy = (): void => {
    field.current?.select();
    // Without the permission, the field is selected: the person copies it with the keyboard.
    navigator.clipboard.writeText(key).then(
      () => setIsCopied(true),
      () => undefined,
    );
  };
  const leave = (): void => {
    if (isCopied || isWarned) onClose();
    else setIsWarned(true);
  };
  const words = texts.once;
  return (
    <Dialog title={words.title} onClose={leave}>
      <p>{words.text}</p>
      <Field label={words.key}>
        {(ids) => (
          <input {...ids} ref={field} readOnly value={key} autoComplete="off" onCopy={() => setIsCopied(true)} />
        )}
      </Field>
      <p className="buttons">
        <button type="button" className="main" autoFocus onClick={copy}>
          {words.copy}
        </button>
        <span role="status">{isCopied ? words.copied : ''}</span>
      </p>
      <h3>{words.env}</h3>
      <CommandLine>{`SVC_API_KEY=${key}`}</CommandLine>
      <InForce propagation={propagation} />
      {isWarned ? (
        <div role="alert" className="notice">
          <p>{words.notCopied}</p>
          <p className="buttons">
            <button type="button" ref={focusNow} onClick={() => setIsWarned(false)}>
              {words.goBack}
            </button>
            <button type="button" className="danger" onClick={onClose}>
              {texts.close}
            </button>
          </p>
        </div>
      ) : (
        <p className="buttons">
          <button type="button" onClick={leave}>
            {texts.done}
          </button>
        </p>
      )}
    </Dialog>
  );
}
