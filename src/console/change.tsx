import { type ReactNode, useState } from 'react';
import { ApiProblem, type Me } from './api';
import { Dialog, Problem } from './elements';
import { Prove } from './sign-in';
import { texts } from './texts';

/** A change that a dialog sends, and its result or error. */
export interface Sent<Result> {
  readonly result: Result | null;
  readonly error: unknown;
  readonly isBusy: boolean;
  readonly send: (request: () => Promise<Result>) => void;
}

/**
 * Sends a change for a dialog and holds its state. The result stays out of the query cache, because it can contain a
 * secret.
 */
export function useChange<Result>(): Sent<Result> {
  const [state, setState] = useState<Omit<Sent<Result>, 'send'>>({ result: null, error: null, isBusy: false });
  const send = (request: () => Promise<Result>): void => {
    if (state.isBusy) return;
    setState({ result: null, error: null, isBusy: true });
    request().then(
      (result) => setState({ result, error: null, isBusy: false }),
      (error: unknown) => setState({ result: null, error, isBusy: false }),
    );
  };
  return { ...state, send };
}

/** Returns the message about a field of a failed change; undefined without a message. */
export function about(error: unknown, field: string): string | undefined {
  return error instanceof ApiProblem ? error.about(field) : undefined;
}

/**
 * Shows why a change failed, or that it waits for an approval. If the API requires a recent sign-in, asks for it and
 * offers to send the change again.
 */
export function ChangeProblem({
  error,
  me,
  onRetry,
}: {
  readonly error: unknown;
  readonly me: Me;
  readonly onRetry: () => void;
}): ReactNode {
  if (error instanceof ApiProblem && error.code === 'identity_not_proven')
    return <Prove hasSignIn={me.hasSignIn} onRetry={onRetry} />;
  if (error instanceof ApiProblem && error.code === 'approval_required')
    return <p role="status">{texts.merchant.approval}</p>;
  return <Problem error={error} roles={me.roles.join(', ')} />;
}

/** A dialog that sends one change. In a dangerous dialog, the focus begins at the button that changes nothing. */
export function FormDialog({
  title,
  action,
  me,
  sent: { error, isBusy },
  isDangerous = false,
  children,
  onSend,
  onClose,
}: {
  readonly title: string;
  /** The text of the button that sends the change. */
  readonly action: string;
  readonly me: Me;
  readonly sent: Pick<Sent<unknown>, 'error' | 'isBusy'>;
  readonly isDangerous?: boolean;
  readonly children: ReactNode;
  readonly onSend: () => void;
  readonly onClose: () => void;
}): ReactNode {
  return (
    <Dialog title={title} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          onSend();
        }}
      >
        {children}
        <ChangeProblem {...{ error, me }} onRetry={onSend} />
        <p className="buttons">
          <button type="button" autoFocus={isDangerous} onClick={onClose}>
            {texts.cancel}
          </button>
          <button type="submit" className={isDangerous ? 'danger' : 'main'} disabled={isBusy}>
            {action}
          </button>
        </p>
      </form>
    </Dialog>
  );
}
