import { useQueryClient } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { ApiProblem, call, type Me, type Merchant, type Propagation } from '../api';
import { ChangeProblem, useChange } from '../change';
import { Dialog, focusNow } from '../elements';
import { may } from '../frame';
import { InForce } from './shown-once';
import { texts } from '../texts';

interface Action {
  readonly label: string;
  readonly title: string;
  readonly text: string;
  readonly change: object;
}

/** Returns the actions that are possible in the current state of a merchant. */
function actionsFor({ name, status, goLive }: Merchant): Action[] {
  const words = texts.merchant;
  return [
    status === 'ACTIVE'
      ? {
          ...{ label: words.suspend, title: words.suspendTitle(name), text: words.suspendText },
          change: { status: 'SUSPENDED' },
        }
      : {
          ...{ label: words.activate, title: words.activateTitle(name), text: words.activateText },
          change: { status: 'ACTIVE' },
        },
    ...(goLive
      ? []
      : [
          {
            ...{ label: words.goLive, title: words.goLiveTitle(name), text: words.goLiveText },
            change: { goLive: true },
          },
        ]),
  ];
}

/** Buttons that change the state of a merchant. Each first shows the consequences and asks for a confirmation. */
export function MerchantActions({ merchant, me }: { readonly merchant: Merchant; readonly me: Me }): ReactNode {
  const [action, setAction] = useState<Action | null>(null);
  if (!may(me, 'merchants:write')) return null;
  return (
    <>
      {actionsFor(merchant).map((one) => (
        <button key={one.label} type="button" onClick={() => setAction(one)}>
          {one.label}
        </button>
      ))}
      {action === null ? null : <Confirm {...{ action, merchant, me }} onClose={() => setAction(null)} />}
    </>
  );
}

function Confirm({
  action,
  merchant,
  me,
  onClose,
}: {
  readonly action: Action;
  readonly merchant: Merchant;
  readonly me: Me;
  readonly onClose: () => void;
}): ReactNode {
  const client = useQueryClient();
  // The merchant's revision (number of its latest change) when the dialog opened. The API rejects the change if the
  // merchant has a newer revision.
  const [revision] = useState(merchant.revision);
  const sent = useChange<Propagation>();
  const change = (): void => {
    sent.send(async (reason) => {
      const [path, body] = [`/merchants/${merchant.id}`, { ...action.change, revision }];
      const { data } = await call<{ propagation: Propagation }>(path, { method: 'PATCH', body, reason });
      void client.invalidateQueries({ queryKey: ['merchants'] });
      return data.propagation;
    });
  };
  const { result: done, error, isBusy } = sent;
  const waits = error instanceof ApiProblem && error.code === 'approval_required';
  return (
    <Dialog title={action.title} {...{ isBusy, onClose }}>
      {done === null ? <p>{action.text}</p> : <InForce propagation={done} />}
      <ChangeProblem {...{ sent, me }} onRetry={change} />
      <p className="buttons">
        <button key={done === null ? 'ask' : 'done'} type="button" ref={focusNow} disabled={isBusy} onClick={onClose}>
          {done === null && !waits ? texts.cancel : texts.done}
        </button>
        {done === null && !waits ? (
          <button type="button" className="main" disabled={isBusy} onClick={change}>
            {action.label}
          </button>
        ) : null}
      </p>
    </Dialog>
  );
}
