import { useQuery, useQueryClient } from '@tanstack/react-query';
import { type ReactNode, useEffect, useLayoutEffect, useState } from 'react';
import { Link, useLocation } from 'wouter';
import { ApiProblem, call, type Me } from './api';
import { FormDialog, useChange } from './change';
import { SignInLink, Text } from './elements';
import { useChanges } from './live';
import { Search } from './search';
import { texts } from './texts';

/**
 * Returns the signed-in person as `me`; undefined before the first response, or if no person has signed in.
 * `isSignedOut` is true if the browser has no valid session. If the session ends while the page is open, `me` keeps its
 * last value.
 */
export function useMe(): { readonly me: Me | undefined; readonly isSignedOut: boolean } {
  const { data, error } = useQuery({
    queryKey: ['me'],
    queryFn: async ({ signal }) => (await call<Me>('/me', { signal })).data,
    refetchInterval: 60_000,
  });
  return { me: data, isSignedOut: error instanceof ApiProblem && error.status === 401 };
}

/** Whether the roles of a person include a permission. */
export function may(me: Me, permission: string): boolean {
  return me.permissions.includes(permission);
}

/** The header and the navigation around each page. */
export function Frame({
  me,
  isSignedOut,
  children,
}: {
  readonly me: Me;
  readonly isSignedOut: boolean;
  readonly children: ReactNode;
}): ReactNode {
  useChanges(may(me, 'events:read'));
  const offlineSince = useOffline();
  const [location] = useLocation();
  const pages = [
    ...(me.merchantId === null ? [['/merchants', texts.nav.merchants] as const] : []),
    ...(me.merchantId === null && may(me, 'gateways:read') ? [['/gateways', texts.nav.gateways] as const] : []),
    ...(me.merchantId === null && may(me, 'approvals:read') ? [['/approvals', texts.nav.approvals] as const] : []),
    ...(me.merchantId === null && may(me, 'unusual:read') ? [['/unusual', texts.nav.unusual] as const] : []),
    ...(me.hasWallets === true && may(me, 'wallets:read') ? [['/wallets', texts.nav.wallets] as const] : []),
    ...(may(me, 'events:read') ? [['/events', texts.nav.events] as const] : []),
    ...(may(me, 'administrators:read') ? [['/administrators', texts.nav.administrators] as const] : []),
    ['/tokens', texts.nav.tokens] as const,
    ['/sessions', texts.nav.sessions] as const,
  ];
  const [, , , merchantPage = 'keys'] = location.split('/');
  const current = location.startsWith('/merchants/')
    ? merchantPages(me).find(([page]) => page === merchantPage)
    : pages.find(([to]) => location.startsWith(to));
  const title = current?.[1];
  useLayoutEffect(() => {
    // The title identifies the page in the browser's tabs and history, and screen readers read it first.
    document.title = title === undefined ? texts.product : texts.pageTitle(title);
  }, [title]);
  return (
    <>
      <a className="skip" href="#content">
        {texts.skip}
      </a>
      <header className="top">
        <strong>{texts.product}</strong>
        <Search />
        <span className="account">
          <Text>{texts.account(me.name, me.roles.join(', '))}</Text>
        </span>
        <Theme />
        <SignOut me={me} />
      </header>
      <nav aria-label={texts.nav.label} className="pages">
        {me.merchantId === null ? null : <MerchantLinks id={me.merchantId} location={location} me={me} />}
        {pages.map(([to, text]) => (
          <Link key={to} href={to} aria-current={location.startsWith(to) ? 'page' : undefined}>
            {text}
          </Link>
        ))}
      </nav>
      <main id="content" tabIndex={-1}>
        {offlineSince === null ? null : (
          <p role="status" className="notice">
            {texts.offline(offlineSince)}
          </p>
        )}
        {isSignedOut ? (
          <p role="alert" className="notice">
            {texts.signedOut} <SignInLink />
          </p>
        ) : null}
        {children}
      </main>
    </>
  );
}

/** Links to the pages of one merchant. */
export function MerchantLinks({
  id,
  location,
  me,
}: {
  readonly id: string;
  readonly location: string;
  readonly me: Me;
}): ReactNode {
  return merchantPages(me).map(([page, text]) => {
    const to = `/merchants/${id}/${page}`;
    return (
      <Link key={page} href={to} aria-current={location === to ? 'page' : undefined}>
        {text}
      </Link>
    );
  });
}

/** Returns the pages of a merchant that a person may see. */
function merchantPages(me: Me): readonly (readonly [page: string, text: string])[] {
  const words = texts.merchantNav;
  return [
    ['keys', words.keys],
    ['allowlists', words.allowlists],
    ...(may(me, 'usage:read') ? [['activity', words.activity] as const, ['try', words.tryIt] as const] : []),
    ...(may(me, 'members:read') ? [['members', words.members] as const] : []),
  ];
}

function useOffline(): string | null {
  const [since, setSince] = useState<string | null>(null);
  useEffect(() => {
    const lost = (): void => {
      setSince((former) => former ?? new Intl.DateTimeFormat(undefined, { timeStyle: 'short' }).format());
    };
    const found = (): void => setSince(null);
    window.addEventListener('offline', lost);
    window.addEventListener('online', found);
    return () => {
      window.removeEventListener('offline', lost);
      window.removeEventListener('online', found);
    };
  }, []);
  return since;
}

type ThemeName = keyof typeof texts.theme & ('system' | 'light' | 'dark');
const themes = ['system', 'light', 'dark'] as const;

function Theme(): ReactNode {
  const [theme, setTheme] = useState<ThemeName>(() => {
    const stored = localStorage.getItem('theme');
    return themes.find((name) => name === stored) ?? 'system';
  });
  useEffect(() => {
    localStorage.setItem('theme', theme);
    document.documentElement.dataset.theme = theme;
  }, [theme]);
  return (
    <label className="theme">
      <span className="hidden">{texts.theme.label}</span>
      <select value={theme} onChange={({ currentTarget }) => setTheme(currentTarget.value as ThemeName)}>
        {themes.map((name) => (
          <option key={name} value={name}>
            {texts.theme[name]}
          </option>
        ))}
      </select>
    </label>
  );
}

/** A button that ends the session. If that fails, opens a dialog with the error. */
function SignOut({ me }: { readonly me: Me }): ReactNode {
  const client = useQueryClient();
  const sent = useChange<null>();
  const end = (): void => {
    sent.send(
      async (reason) => {
        try {
          if (me.session !== null) await call(`/sessions/${me.session.id}`, { method: 'DELETE', reason });
        } catch (error) {
          // Without a valid session, the person is signed out already.
          if (!(error instanceof ApiProblem) || error.status !== 401) throw error;
        }
        return null;
      },
      () => {
        client.clear();
        location.assign('/console/');
      },
    );
  };
  return (
    <>
      <button type="button" disabled={sent.isBusy} onClick={end}>
        {texts.signOut}
      </button>
      {sent.error !== null || sent.reason !== null ? (
        <FormDialog title={texts.signOut} action={texts.signOut} {...{ me, sent }} onSend={end} onClose={sent.reset} />
      ) : null}
    </>
  );
}
