import { useQueryClient } from '@tanstack/react-query';
import { type ReactNode, useEffect, useState } from 'react';
import { useLocation, useSearchParams } from 'wouter';
import { ApiProblem, call } from './api';
import { CommandLine } from './elements';
import { texts } from './texts';

/** The page for a browser without a session. Shows how to sign in, and why a sign-in failed. */
export function SignInPage(): ReactNode {
  const [parameters] = useSearchParams();
  const failure = texts.signIn.failures[parameters.get('sign-in') ?? ''];
  const to = encodeURIComponent(location.pathname);
  return (
    <main className="alone">
      <h1>{texts.signIn.title}</h1>
      {failure === undefined ? null : (
        <p role="alert" className="problem">
          {failure}
        </p>
      )}
      <p>
        <a className="button" href={`/console/sign-in?to=${to}`}>
          {texts.signIn.withProvider}
        </a>
      </p>
      <p>{texts.signIn.withLink}</p>
      <CommandLine>{texts.signIn.command}</CommandLine>
    </main>
  );
}

/**
 * Exchanges the token of a one-time link for a session, after a click. A page of an attacker could open the attacker's
 * own link; without the click, the person would work in the attacker's account. The token is in the URL fragment, which
 * browsers never send to a server.
 */
export function EnterPage(): ReactNode {
  const client = useQueryClient();
  const [, navigate] = useLocation();
  const [token] = useState(() => location.hash.slice(1));
  const [problem, setProblem] = useState<string | null>(/^[\w-]{43}$/.test(token) ? null : texts.enter.noToken);
  // True after a failure such as an outage. The link may still be valid, so the button stays.
  const [isUnavailable, setIsUnavailable] = useState(false);
  const [isSending, setIsSending] = useState(false);
  useEffect(() => {
    // Remove the token from the address bar and the browser history.
    history.replaceState(null, '', '/console/enter');
    // If another link is opened in this tab, only the fragment changes. So reload the page, which reads the new token.
    const reload = (): void => location.reload();
    addEventListener('hashchange', reload);
    return () => removeEventListener('hashchange', reload);
  }, []);
  const enter = (): void => {
    setIsSending(true);
    setIsUnavailable(false);
    call('/enter', { method: 'POST', body: { token } }).then(
      async () => {
        await client.resetQueries();
        navigate('/', { replace: true });
      },
      (error: unknown) => {
        const isRefused = error instanceof ApiProblem && error.status > 0 && error.status < 500;
        if (isRefused) setProblem(texts.enter.failed);
        else setIsUnavailable(true);
        setIsSending(false);
      },
    );
  };
  return (
    <main className="alone">
      <h1>{texts.signIn.title}</h1>
      {problem === null ? (
        <>
          <p>{texts.enter.text}</p>
          {isUnavailable ? (
            <p role="alert" className="problem">
              {texts.unavailable}
            </p>
          ) : null}
          <button type="button" autoFocus disabled={isSending} onClick={enter}>
            {isSending ? texts.enter.sending : texts.enter.button}
          </button>
        </>
      ) : (
        <>
          <p role="alert" className="problem">
            {problem}
          </p>
          <CommandLine>{texts.signIn.command}</CommandLine>
        </>
      )}
    </main>
  );
}

/** Asks the person to sign in again in another tab, so that the input on this page is kept. */
export function Prove({
  hasSignIn,
  onRetry,
}: {
  readonly hasSignIn: boolean;
  readonly onRetry: () => void;
}): ReactNode {
  return (
    <section role="alert" className="notice">
      <h3>{texts.prove.title}</h3>
      <p>{texts.prove.text}</p>
      {hasSignIn ? (
        <p>
          <a href="/console/sign-in?prove=yes" target="_blank" rel="noopener">
            {texts.prove.withProvider}
          </a>
        </p>
      ) : null}
      <p>{texts.prove.withLink}</p>
      <CommandLine>{texts.signIn.command}</CommandLine>
      <button type="button" onClick={onRetry}>
        {texts.prove.retry}
      </button>
    </section>
  );
}
