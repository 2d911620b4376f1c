import { useQueryClient } from '@tanstack/react-query';
import { type ReactNode, useLayoutEffect, useRef, useState } from 'react';
import { ApiProblem, type Me } from './api';
import { Dialog, focusNow, Problem } from './elements';
import { Field } from './fields';
import { Prove } from './sign-in';
import { texts } from './texts';

/** A change that a dialog or a page sends, and its result or error. */
export interface Sent<Result> {
  readonly result: Result | null;
  readonly error: unknown;
  readonly isBusy: boolean;
  /** The reason for the change, as the person types it; null until the API has required a reason. */
  readonly reason: string | null;
  readonly setReason: (reason: string) => void;
  /**
   * Sends the change. The request gets the reason that the person has typed. After a success, calls `onDone`, unless
   * the dialog or page is gone by then. `change` names the change, because each change of a page has its own reason.
   */
  readonly send: (
    request: (reason: string | undefined) => Promise<Result>,
    onDone?: (result: Result) => void,
    change?: string,
  ) => void;
  /** Discards the result, the error and the reason. */
  readonly reset: () => void;
}

type State<Result> = Pick<Sent<Result>, 'result' | 'error' | 'isBusy' | 'reason'> & {
  /** The change for which the person types the reason. */
  readonly change: string;
};

const idle = { result: null, error: null, isBusy: false, reason: null, change: '' } as const;

/**
 * Sends a change for a dialog or a page, and holds the result or the error. The result stays out of the query cache,
 * because the result can contain a secret.
 */
export function useChange<Result>(): Sent<Result> {
  const [state, setState] = useState<State<Result>>(idle);
  const isGone = useRef(false);
  useLayoutEffect(
    () => () => {
      isGone.current = true;
    },
    [],
  );
  const send: Sent<Result>['send'] = (request, onDone, change = '') => {
    if (state.isBusy) return;
    const reason = change === state.change ? state.reason : null;
    setState({ ...idle, isBusy: true, reason, change });
    request((reason ?? '').trim() || undefined).then(
      (result) => {
        // If the dialog or page is gone, `onDone` could close another dialog or page that the person has opened since.
        if (isGone.current) return;
        setState({ ...idle, result });
        onDone?.(result);
      },
      (error: unknown) => {
        const firstReason = codeOf(error) === 'reason_required' ? '' : null;
        setState((former) => ({ ...former, error, isBusy: false, reason: former.reason ?? firstReason }));
      },
    );
  };
  const setReason = (reason: string): void => setState((former) => ({ ...former, reason }));
  return { ...state, setReason, send, reset: () => setState(idle) };
}

/**
 * Sends changes of single rows for a page with a list. `retry` sends the latest change again, with the reason that the
 * person has typed. A change of another row does not use this reason.
 */
export function useRowChange<Target>(make: (target: Target, reason: string | undefined) => Promise<unknown>): {
  readonly sent: Sent<null>;
  readonly send: (target: Target) => void;
  readonly retry: () => void;
} {
  const client = useQueryClient();
  const sent = useChange<null>();
  const [last, setLast] = useState<Target | null>(null);
  const send = (target: Target): void => {
    setLast(target);
    const request = async (reason: string | undefined): Promise<null> => {
      try {
        await make(target, reason);
      } catch (error) {
        // Show the error at once, without waiting until the lists are reloaded.
        void client.invalidateQueries();
        throw error;
      }
      // Wait until the lists are reloaded: the buttons stay disabled while a list still shows the changed row.
      await client.invalidateQueries();
      return null;
    };
    sent.send(request, undefined, JSON.stringify(target));
  };
  const retry = (): void => {
    if (last !== null) send(last);
  };
  return { sent, send, retry };
}

function codeOf(error: unknown): string | null {
  return error instanceof ApiProblem ? error.code : null;
}

/** Returns the message about a field of a failed change; undefined without a message. */
export function about(error: unknown, field: string): string | undefined {
  return error instanceof ApiProblem ? error.about(field) : undefined;
}

type Shown = Omit<Sent<unknown>, 'send' | 'reset'>;

/**
 * Shows why a change failed, or that it waits for an approval. If the API requires a reason or a recent sign-in, asks
 * the person for it and offers to send the change again.
 */
export function ChangeProblem({
  sent,
  me,
  onRetry,
}: {
  readonly sent: Shown;
  readonly me: Me;
  readonly onRetry: () => void;
}): ReactNode {
  const { error, reason } = sent;
  const code = codeOf(error);
  if (code === 'approval_required') return <p role="status">{texts.merchant.approval}</p>;
  return (
    <>
      {reason === null ? null : <ReasonField {...{ ...sent, reason }} onSend={onRetry} />}
      {code === 'identity_not_proven' ? (
        <Prove hasSignIn={me.hasSignIn} onRetry={onRetry} />
      ) : code === 'reason_required' ? null : (
        <Problem error={error} roles={me.roles.join(', ')} />
      )}
    </>
  );
}

/**
 * A field for the reason of a change. It stays after the reason was sent, so that the person can correct a reason that
 * the API rejects.
 */
function ReasonField({
  error,
  isBusy,
  reason,
  setReason,
  onSend,
}: Omit<Shown, 'reason'> & { readonly reason: string; readonly onSend: () => void }): ReactNode {
  const words = texts.reason;
  const problem = codeOf(error) === 'reason_required' ? words.required : undefined;
  return (
    <div className="notice">
      <Field label={words.label} help={words.help} problem={problem}>
        {(ids) => (
          <input
            {...ids}
            ref={focusNow}
            value={reason}
            maxLength={200}
            autoComplete="off"
            onInput={({ currentTarget }) => setReason(currentTarget.value)}
          />
        )}
      </Field>
      <button type="button" disabled={isBusy} onClick={onSend}>
        {words.send}
      </button>
    </div>
  );
}

/**
 * A dialog that sends one change, and stays open until the response. If the change is dangerous, the cancel button has
 * the focus first, so that a hasty Enter changes nothing.
 */
export function FormDialog({
  title,
  action,
  cancel = texts.cancel,
  me,
  sent,
  isDangerous = false,
  children,
  onSend,
  onClose,
}: {
  readonly title: string;
  /** The text of the button that sends the change. */
  readonly action: string;
  /** The text of the button that closes the dialog without the change. */
  readonly cancel?: string;
  readonly me: Me;
  readonly sent: Shown;
  readonly isDangerous?: boolean;
  readonly children?: ReactNode;
  readonly onSend: () => void;
  readonly onClose: () => void;
}): ReactNode {
  const { isBusy } = sent;
  return (
    <Dialog {...{ title, isBusy, onClose }}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          onSend();
        }}
      >
        {children}
        <ChangeProblem {...{ sent, me }} onRetry={onSend} />
        <p className="buttons">
          <button type="button" autoFocus={isDangerous} disabled={isBusy} onClick={onClose}>
            {cancel}
          </button>
          <button type="submit" className={isDangerous ? 'danger' : 'main'} disabled={isBusy}>
            {action}
          </button>
        </p>
      </form>
    </Dialog>
  );
}
