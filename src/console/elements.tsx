import { type ReactNode, type SyntheticEvent, useEffect, useId, useLayoutEffect, useRef, useState } from 'react';
import { ApiProblem } from './api';
import { texts } from './texts';

/**
 * Invisible characters. Unicode counts some of them as letters, such as U+3164 (HANGUL FILLER), or as symbols, such as
 * U+2800 (BRAILLE PATTERN BLANK).
 */
const invisible = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]/gu;

/**
 * Shows a text that was chosen by a client or another person. The text cannot change the direction of the text around
 * it. Invisible characters are shown as codes, so that one name cannot pass for another.
 */
export function Text({ children }: { readonly children: string }): ReactNode {
  return <bdi>{children.replaceAll(invisible, asCode)}</bdi>;
}

function asCode(character: string): string {
  return `\\u${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}`;
}

const relative = new Intl.RelativeTimeFormat(undefined, { numeric: 'auto' });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
const units = [
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
] as const;

/** Returns a time relative to now, such as "2 minutes ago". */
export function inWords(moment: string, now = Date.now()): string {
  const seconds = (Date.parse(moment) - now) / 1000;
  const [unit, length] = units.find(([, least]) => Math.abs(seconds) >= least) ?? ['second', 1];
  return relative.format(Math.round(seconds / length), unit);
}

/** Shows a time relative to now. Its tooltip has the exact time in the reader's time zone and in UTC. */
export function Time({ at }: { readonly at: string }): ReactNode {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((count) => count + 1), 30_000);
    return () => clearInterval(timer);
  }, []);
  return (
    <time dateTime={at} title={`${exact.format(new Date(at))}\n${at} (UTC)`}>
      {inWords(at)}
    </time>
  );
}

/** A table with a caption for screen readers. In a narrow window, only the table scrolls sideways, not the page. */
export function Table({
  caption,
  columns,
  children,
}: {
  readonly caption: string;
  readonly columns: readonly string[];
  readonly children: ReactNode;
}): ReactNode {
  return (
    <div className="scroll" role="region" aria-label={caption} tabIndex={0}>
      <table>
        <caption className="hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column} scope="col">
                {column}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

/**
 * A modal dialog. The Escape key only calls `onClose`, so that the parent component decides whether to close the
 * dialog. While a change is being sent (`isBusy`), the key does nothing: the response could contain a secret, which
 * would be lost.
 */
export function Dialog({
  title,
  isBusy = false,
  onClose,
  children,
}: {
  readonly title: string;
  readonly isBusy?: boolean;
  readonly onClose: () => void;
  readonly children: ReactNode;
}): ReactNode {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useLayoutEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => {
      // Closing the dialog returns the focus to the element that had it before.
      element?.close();
      const { activeElement } = document;
      const isLost = activeElement === null || activeElement === document.body || element?.contains(activeElement);
      // A reload can have removed that element, such as the button that revoked a key.
      if (isLost) document.getElementById('content')?.focus({ preventScroll: true });
    };
  }, []);
  useLayoutEffect(() => {
    const element = dialog.current;
    if (!isBusy || element === null) return;
    // The pressed button is disabled now and loses the focus. Focus the dialog, so that it still receives Escape.
    const pressed = document.activeElement;
    element.focus();
    return () => {
      if (document.activeElement === element && pressed instanceof HTMLElement) pressed.focus();
    };
  }, [isBusy]);
  const escape = (event: SyntheticEvent): void => {
    event.preventDefault();
    if (!isBusy) onClose();
  };
  return (
    <dialog
      ref={dialog}
      tabIndex={-1}
      aria-labelledby={id}
      onCancel={escape}
      onKeyDown={(event) => {
        if (event.key === 'Escape') escape(event);
      }}
    >
      <h2 id={id}>
        <Text>{title}</Text>
      </h2>
      {children}
      {isBusy ? <p role="status">{texts.sending}</p> : null}
    </dialog>
  );
}

/**
 * A `ref` callback that focuses an element as soon as it appears in an open dialog. If the element replaces the focused
 * one, the focus would otherwise leave the dialog.
 */
export function focusNow(element: HTMLElement | null): void {
  element?.focus();
}

/** A link that opens the sign-in in another tab, so that the input on this page is kept. */
export function SignInLink(): ReactNode {
  return (
    <a href="/console/" target="_blank" rel="noopener">
      {texts.signInInNewTab}
    </a>
  );
}

/**
 * Shows an error in words, some of which another person may have chosen. Screen readers announce it. If the session has
 * ended, also shows a link to the sign-in, because an open dialog makes the same link in `Frame` unusable.
 */
export function Problem({ error, roles = '' }: { readonly error: unknown; readonly roles?: string }): ReactNode {
  if (error === null || error === undefined) return null;
  return (
    <p role="alert" className="problem">
      <Text>{wordsOf(error, roles)}</Text> {error instanceof ApiProblem && error.status === 401 ? <SignInLink /> : null}
    </p>
  );
}

function wordsOf(error: unknown, roles: string): string {
  if (!(error instanceof ApiProblem)) return error instanceof Error ? error.message : String(error);
  if (error.isUnclear) return `${texts.unclear} ${texts.seeEvents}`;
  if (error.status === 0 || error.status >= 500) return texts.unavailable;
  if (error.status === 401) return texts.signedOut;
  const { permission } = error.details;
  if (error.code === 'permission_missing' && typeof permission === 'string') return texts.forbidden(roles, permission);
  return error.message;
}

/** The state before and after a change, in a section that the reader can expand. */
export function Change({
  before,
  after,
}: {
  readonly before: object | null;
  readonly after: object | null;
}): ReactNode {
  return (
    <details>
      <summary>{texts.events.details}</summary>
      <pre>
        <Text>{JSON.stringify({ before, after })}</Text>
      </pre>
    </details>
  );
}

/** Shows a command line that the reader can copy. */
export function CommandLine({ children }: { readonly children: string }): ReactNode {
  return (
    <pre tabIndex={0}>
      <code>{children}</code>
    </pre>
  );
}
