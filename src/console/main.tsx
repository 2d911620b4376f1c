import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { createRoot } from 'react-dom/client';
import { Redirect, Route, Router, Switch } from 'wouter';
import { ApiProblem } from './api';
import { SessionsPage } from './account/sessions';
import { TokensPage } from './account/tokens';
import { AdministratorsPage } from './operators/administrators';
import { ApprovalsPage } from './operators/approvals';
import { EventsPage } from './operators/events';
import { Frame, useMe } from './frame';
import { GatewaysPage } from './operators/gateways';
import { MerchantPage } from './merchant/merchant';
import { MerchantsPage } from './operators/merchants';
import { EnterPage, SignInPage } from './sign-in';
import { texts } from './texts';
import { UnusualPage } from './operators/unusual';
import { WalletPage } from './operators/wallet';
import { WalletsPage } from './operators/wallets';

const client = new QueryClient({
  defaultOptions: {
    queries: {
      // Age in milliseconds above which data is read again when the person returns to the page. The age can be this
      // long, because the server reports changes at once while the page is visible.
      staleTime: 30_000,
      retry: (count, error) => count < 2 && !(error instanceof ApiProblem && error.status > 0 && error.status < 500),
    },
  },
});

function Pages(): ReactNode {
  const { me, isSignedOut } = useMe();
  if (me === undefined) return isSignedOut ? <SignInPage /> : <p className="waiting">{texts.loading}</p>;
  const home = me.merchantId === null ? '/merchants' : `/merchants/${me.merchantId}/keys`;
  return (
    <Frame me={me} isSignedOut={isSignedOut}>
      <Switch>
        <Route path="/merchants" component={MerchantsPage} />
        <Route path="/merchants/:id/:page?">
          {({ id, page }) => <MerchantPage key={id} id={id} page={page ?? 'keys'} me={me} />}
        </Route>
        <Route path="/gateways" component={GatewaysPage} />
        <Route path="/approvals" component={ApprovalsPage} />
        <Route path="/unusual" component={UnusualPage} />
        <Route path="/wallets" component={WalletsPage} />
        <Route path="/wallets/:id">{({ id }) => <WalletPage key={id} id={id} />}</Route>
        <Route path="/events" component={EventsPage} />
        <Route path="/administrators" component={AdministratorsPage} />
        <Route path="/administrators/:id/tokens">{({ id }) => <TokensPage key={id} me={me} of={id} />}</Route>
        <Route path="/administrators/:id/sessions">{({ id }) => <SessionsPage key={id} of={id} />}</Route>
        <Route path="/tokens">
          <TokensPage me={me} />
        </Route>
        <Route path="/sessions">
          <SessionsPage />
        </Route>
        <Route path="/">
          <Redirect to={home} replace />
        </Route>
        <Route>
          <h1>{texts.noPage}</h1>
        </Route>
      </Switch>
    </Frame>
  );
}

const root = document.getElementById('root');
if (root !== null) {
  createRoot(root).render(
    <QueryClientProvider client={client}>
      <Router base="/console">
        <Switch>
          <Route path="/enter" component={EnterPage} />
          <Route component={Pages} />
        </Switch>
      </Router>
    </QueryClientProvider>,
  );
}
