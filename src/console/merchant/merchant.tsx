import { useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { useLocation } from 'wouter';
import { ActivityPage } from './activity';
import { AllowlistsPage } from './allowlists';
import { call, type Me, type Merchant } from '../api';
import { Problem, Text } from '../elements';
import { MerchantLinks } from '../frame';
import { KeysPage } from './keys';
import { MembersPage } from './members';
import { MerchantActions } from './merchant-actions';
import { texts } from '../texts';
import { TryItPage } from './try-it';

const pages: Readonly<Record<string, (props: { readonly merchant: Merchant; readonly me: Me }) => ReactNode>> = {
  keys: KeysPage,
  allowlists: AllowlistsPage,
  activity: ActivityPage,
  try: TryItPage,
  members: MembersPage,
};

/** Shows one of the pages of a merchant. */
export function MerchantPage({
  id,
  page,
  me,
}: {
  readonly id: string;
  readonly page: string;
  readonly me: Me;
}): ReactNode {
  const [location] = useLocation();
  const { data, error } = useQuery({
    queryKey: ['merchants', id],
    queryFn: async ({ signal }) => (await call<Merchant>(`/merchants/${encodeURIComponent(id)}`, { signal })).data,
  });
  if (error !== null && data === undefined) return <Problem error={error} roles={me.roles.join(', ')} />;
  if (data === undefined) return <p className="waiting">{texts.loading}</p>;
  const Page = pages[page];
  return (
    <>
      <p className="merchant">
        <strong>
          <Text>{data.name}</Text>
        </strong>{' '}
        <code>{data.id}</code>{' '}
        <span className={`status ${data.status === 'ACTIVE' ? 'good' : 'ended'}`}>{data.status}</span>{' '}
        {data.goLive ? texts.merchants.live : texts.merchants.notLive} <MerchantActions merchant={data} me={me} />
      </p>
      {me.merchantId === null ? (
        <nav aria-label={texts.merchantNav.label} className="tabs">
          <MerchantLinks id={data.id} location={location} me={me} />
        </nav>
      ) : null}
      {Page === undefined ? <h1>{texts.noPage}</h1> : <Page merchant={data} me={me} />}
    </>
  );
}
