import { type ReactNode, useRef, useState } from 'react';
import { Dialog, focusNow } from './elements';
import { Field } from './fields';
import { texts } from './texts';

/**
 * A dialog with a secret that cannot be shown again. Only the state of the parent component holds the secret, so the
 * secret is gone when the dialog closes. Until the secret is copied, the first attempt to close only shows a warning.
 */
export function SecretOnce({
  secret,
  words,
  children,
  onClose,
}: {
  readonly secret: string;
  readonly words: {
    readonly title: string;
    readonly text: string;
    readonly field: string;
    readonly copy: string;
    readonly notCopied: string;
  };
  readonly children?: ReactNode;
  readonly onClose: () => void;
}): ReactNode {
  const [isCopied, setIsCopied] = useState(false);
  const [isWarned, setIsWarned] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const copy = (): void => {
    field.current?.select();
    // If the browser denies access to the clipboard, the person can copy the selected field with the keyboard.
    navigator.clipboard.writeText(secret).then(
      () => setIsCopied(true),
      () => undefined,
    );
  };
  const leave = (): void => {
    if (isCopied || isWarned) onClose();
    else setIsWarned(true);
  };
  return (
    <Dialog title={words.title} onClose={leave}>
      <p>{words.text}</p>
      <Field label={words.field}>
        {(ids) => (
          <input {...ids} ref={field} readOnly value={secret} autoComplete="off" onCopy={() => setIsCopied(true)} />
        )}
      </Field>
      <p className="buttons">
        <button type="button" className="main" autoFocus ref={focusNow} onClick={copy}>
          {words.copy}
        </button>
        <span role="status">{isCopied ? texts.once.copied : ''}</span>
      </p>
      {children}
      {isWarned ? (
        <div role="alert" className="notice">
          <p>{words.notCopied}</p>
          <p className="buttons">
            <button type="button" ref={focusNow} onClick={() => setIsWarned(false)}>
              {texts.once.goBack}
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
