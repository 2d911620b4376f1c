import { useQueryClient } from '@tanstack/react-query';
import { type ReactNode, useEffect, useRef, useState } from 'react';
import { useLocation, useSearchParams } from 'wouter';
import { ApiProblem, call } from './api';
import { CommandLine } from './elements';
import { texts } from './texts';

/** The page without a session: shows how to sign in, and why a sign-in failed. */
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
 * Exchanges the token of a one-time link for a session. The token is in the URL fragment, which browsers never send to
 * a server.
 */
export function EnterPage(): ReactNode {
  const client = useQueryClient();
  const [, navigate] = useLocation();
  const [problem, setProblem] = useState<string | null>(null);
  const hasBegun = useRef(false);
  useEffect(() => {
    if (hasBegun.current) return;
    hasBegun.current = true;
    const token = location.hash.slice(1);
    // Remove the token from the address bar and the browser history.
    history.replaceState(null, '', '/console/enter');
    if (!/^[\w-]{43}$/.test(token)) {
      setProblem(texts.enter.noToken);
      return;
    }
    call('/enter', { method: 'POST', body: { token } }).then(
      async () => {
        await client.resetQueries();
        navigate('/', { replace: true });
      },
      (error: unknown) => {
        const isRefused = error instanceof ApiProblem && error.status > 0 && error.status < 500;
        setProblem(isRefused ? texts.enter.failed : texts.unavailable);
      },
    );
  }, [client, navigate]);
  return (
    <main className="alone">
      <h1>{problem === null ? texts.enter.title : texts.signIn.title}</h1>
      {problem === null ? null : (
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
