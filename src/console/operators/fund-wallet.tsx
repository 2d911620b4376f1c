import { useQueryClient } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { ApiProblem, call, type Me } from '../api';
import { useChange } from '../change';
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
  /**
   * Id of the approved request; null if the funding has no approval. An approved amount and reference must not be
   * changed.
   */
  readonly approvalId: string | null;
}

/**
 * For each wallet id, the draft that was sent last, if the person has not seen its success. The money may have been
 * moved, so a retry needs the same reference, even after the person has visited other pages. The drafts are only in the
 * memory of the page, so the browser does not store them.
 */
const sentDrafts = new Map<string, Draft>();

/**
 * Returns the draft for the next funding of a wallet: the sent draft whose outcome the person does not know, or else an
 * empty draft with a new reference. The services move money only once per reference.
 */
export function nextDraft(walletId: string): Draft {
  const empty = { amount: '', reference: `console-${crypto.randomUUID()}`, reason: '', approvalId: null };
  return sentDrafts.get(walletId) ?? empty;
}

/**
 * Shows an error of a request about wallets. If the services or the connection to them failed, shows the registry's
 * message unchanged, because the message states the next step.
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
  const sent = useChange<Moved | 'requested'>();
  const { result, error, isBusy } = sent;
  const [last, setLast] = useState<Action | null>(null);
  const amount = minorUnits(draft.amount, currency);
  const reason = draft.reason.trim();
  const close = (): void => onClose(result !== null);

  const act = async (action: Action): Promise<Moved | 'requested'> => {
    const funding = { amount, currency, environment, reference: draft.reference };
    if (action === 'request') {
      await call('/approvals', { method: 'POST', body: { ...funding, walletId: id }, reason });
      return 'requested';
    }
    const query = draft.approvalId === null ? {} : { approvalId: draft.approvalId };
    const body = { ...funding, merchantId, reason };
    return (await call<Moved>(`/wallets/${id}/fund`, { method: 'POST', query, body, reason })).data;
  };
  const send = (action: Action): void => {
    setLast(action);
    if (amount === null || reason === '') return;
    // The draft of an approved funding need not be kept: the registry stores its reference with the approval.
    if (draft.approvalId === null) sentDrafts.set(id, draft);
    // Reload after an error too, because the money may have moved.
    sent.send(
      () => act(action).finally(() => void client.invalidateQueries()),
      () => {
        if (draft.approvalId === null) sentDrafts.delete(id);
      },
    );
  };

  if (result !== null) {
    const moved = result === 'requested' ? null : result;
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
    <Dialog title={words.title} {...{ isBusy }} onClose={close}>
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
          <button type="button" disabled={isBusy} onClick={close}>
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
