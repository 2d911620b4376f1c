import { useQueryClient } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { ApiProblem, call, type Me } from '../api';
import { Dialog, focusNow, Problem } from '../elements';
import { Field } from '../fields';
import { Prove } from '../sign-in';
import { texts } from '../texts';
import { minorUnits, moneyText } from './money';

/** A wallet, as operators see it. */
export interface Wallet {
  readonly id: string;
  readonly merchantId: string;
  readonly environment: 'live' | 'test';
  readonly currency: string;
  readonly balance: number;
  readonly createdAt: string;
}

/**
 * The input for funding a wallet. The page keeps it while the dialog is closed, so that a retry has the same reference.
 */
export interface Draft {
  readonly amount: string;
  readonly reference: string;
  readonly reason: string;
  /** Id of the approval; null without one. With an approval, the amount and the reference must not be changed. */
  readonly approvalId: string | null;
}

/** Returns an empty draft with a new reference. The services move money only once per reference. */
export function newDraft(): Draft {
  return { amount: '', reference: `console-${crypto.randomUUID()}`, reason: '', approvalId: null };
}

/**
 * Shows an error of a request about wallets. If the services failed, shows the registry's message unchanged, because it
 * states the next step.
 */
export function WalletProblem({ error, me }: { readonly error: unknown; readonly me: Me | undefined }): ReactNode {
  const isOfServices = error instanceof ApiProblem && error.code?.startsWith('services_') === true;
  if (!isOfServices) return <Problem error={error} roles={me?.roles.join(', ') ?? ''} />;
  return (
    <p role="alert" className="problem">
      {error.message}
    </p>
  );
}

interface Moved {
  readonly amount: number;
  readonly balanceAfter: number;
  readonly isRepeated: boolean;
}

interface Sent {
  readonly isBusy: boolean;
  readonly error: unknown;
  readonly moved: Moved | null;
  /** Whether an approval was requested. */
  readonly isRequested: boolean;
}

const idle: Sent = { isBusy: false, error: null, moved: null, isRequested: false };
type Action = 'fund' | 'request';

/**
 * A dialog that funds a wallet. If the amount needs the approval of another administrator, it offers to request the
 * approval.
 */
export function FundWallet({
  wallet,
  me,
  draft,
  onDraft,
  onClose,
}: {
  readonly wallet: Wallet;
  readonly me: Me;
  readonly draft: Draft;
  readonly onDraft: (draft: Draft) => void;
  /** `isDone`: the money was moved, or an approval was requested. The draft can then be discarded. */
  readonly onClose: (isDone: boolean) => void;
}): ReactNode {
  const client = useQueryClient();
  const words = texts.wallets.fund;
  const { id, currency, environment, merchantId } = wallet;
  const [{ isBusy, error, moved, isRequested }, setSent] = useState<Sent>(idle);
  const [last, setLast] = useState<Action | null>(null);
  const amount = minorUnits(draft.amount, currency);
  const reason = draft.reason.trim();
  const close = (): void => onClose(moved !== null || isRequested);

  const act = async (action: Action): Promise<Partial<Sent>> => {
    const funding = { amount, currency, environment, reference: draft.reference };
    if (action === 'request') {
      await call('/approvals', { method: 'POST', body: { ...funding, walletId: id }, reason });
      return { isRequested: true };
    }
    const query = draft.approvalId === null ? {} : { approvalId: draft.approvalId };
    const body = { ...funding, merchantId, reason };
    return { moved: (await call<Moved>(`/wallets/${id}/fund`, { method: 'POST', query, body, reason })).data };
  };
  const send = (action: Action): void => {
    setLast(action);
    if (isBusy || amount === null || reason === '') return;
    setSent({ ...idle, isBusy: true });
    act(action).then(
      (done) => {
        setSent({ ...idle, ...done });
        void client.invalidateQueries();
      },
      (problem: unknown) => setSent({ ...idle, error: problem }),
    );
  };

  if (moved !== null || isRequested) {
    return (
      <Dialog title={moved === null ? words.requested : words.done} onClose={close}>
        {moved === null ? (
          <p>{words.requestedText}</p>
        ) : (
          <p>{words.moved(moneyText(moved.amount, currency), moneyText(moved.balanceAfter, currency))}</p>
        )}
        {moved?.isRepeated === true ? <p className="notice">{words.repeated}</p> : null}
        <p className="buttons">
          <button type="button" className="main" ref={focusNow} onClick={close}>
            {texts.done}
          </button>
        </p>
      </Dialog>
    );
  }
  const problem = error instanceof ApiProblem ? error : null;
  const amountProblem = last !== null && amount === null ? words.noAmount : problem?.about('amount');
  const reasonProblem = last !== null && reason === '' ? words.noReason : problem?.about('reason');
  const isApproved = draft.approvalId !== null;
  return (
    <Dialog title={words.title} onClose={close}>
      <form
        noValidate
        onSubmit={(event) => {
          event.preventDefault();
          send('fund');
        }}
      >
        <p>{words.wallet(merchantId, texts.environment[environment], currency)}</p>
        <Field
          label={words.amount(currency)}
          help={amount === null ? words.amountHelp : words.amountIs(moneyText(amount, currency))}
          problem={amountProblem}
        >
          {(ids) => (
            <input
              {...ids}
              value={draft.amount}
              inputMode="decimal"
              autoComplete="off"
              readOnly={isApproved}
              autoFocus={!isApproved}
              onInput={({ currentTarget }) => onDraft({ ...draft, amount: currentTarget.value })}
            />
          )}
        </Field>
        <Field label={words.reference} help={words.referenceHelp} problem={problem?.about('reference')}>
          {(ids) => (
            <input
              {...ids}
              value={draft.reference}
              maxLength={100}
              autoComplete="off"
              readOnly={isApproved}
              onInput={({ currentTarget }) => onDraft({ ...draft, reference: currentTarget.value })}
            />
          )}
        </Field>
        <Field label={words.reason} help={words.reasonHelp} problem={reasonProblem}>
          {(ids) => (
            <input
              {...ids}
              value={draft.reason}
              maxLength={200}
              autoComplete="off"
              autoFocus={isApproved}
              onInput={({ currentTarget }) => onDraft({ ...draft, reason: currentTarget.value })}
            />
          )}
        </Field>
        {problem?.code === 'identity_not_proven' ? (
          <Prove hasSignIn={me.hasSignIn} onRetry={() => send(last ?? 'fund')} />
        ) : problem?.code === 'approval_required' ? (
          <section role="alert" className="notice">
            <p>{words.needsApproval}</p>
            <button type="button" disabled={isBusy} onClick={() => send('request')}>
              {words.request}
            </button>
          </section>
        ) : problem?.isUnclear === true && last === 'fund' ? (
          <p role="alert" className="problem">
            {`${words.unclear} ${problem.code === null ? '' : problem.message}`}
          </p>
        ) : (
          <WalletProblem error={error} me={me} />
        )}
        <p className="buttons">
          <button type="button" onClick={close}>
            {texts.cancel}
          </button>
          <button type="submit" className="main" disabled={isBusy}>
            {words.title}
          </button>
        </p>
      </form>
    </Dialog>
  );
}
