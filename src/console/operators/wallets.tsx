import { keepPreviousData, useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { Link, useSearchParams } from 'wouter';
import { call } from '../api';
import { Pager, Table, Text, Time } from '../elements';
import { useMe } from '../frame';
import { texts } from '../texts';
import { type Wallet, WalletProblem } from './fund-wallet';
import { moneyText } from './money';

const words = texts.wallets;
const filterNames = ['merchantId', 'environment', 'currency'] as const;

/** The wallets of all merchants. */
export function WalletsPage(): ReactNode {
  const { me } = useMe();
  const [parameters, setParameters] = useSearchParams();
  const page = Number(parameters.get('page') ?? 1);
  const given = filterNames
    .map((name) => [name, parameters.get(name) ?? ''] as const)
    .filter(([, text]) => text !== '');
  const filters: Partial<Record<(typeof filterNames)[number], string>> = Object.fromEntries(given);
  const { data, error } = useQuery({
    queryKey: ['wallets', 'list', page, filters],
    queryFn: ({ signal }) =>
      call<readonly Wallet[]>('/wallets', {
        // Three letters are typed one after another.
        query: {
          ...filters,
          page,
          per_page: 50,
          currency: filters.currency?.length === 3 ? filters.currency : undefined,
        },
        signal,
      }),
    placeholderData: keepPreviousData,
  });
  const filter = (name: (typeof filterNames)[number], value: string): void =>
    setParameters({ ...filters, [name]: value }, { replace: true });
  return (
    <>
      <h1>{words.title}</h1>
      <p className="filters">
        <label>
          {words.merchant}{' '}
          <input
            type="search"
            value={filters.merchantId ?? ''}
            onInput={({ currentTarget }) => filter('merchantId', currentTarget.value.trim())}
          />
        </label>
        <label>
          {words.environment}{' '}
          <select
            value={filters.environment ?? ''}
            onChange={({ currentTarget }) => filter('environment', currentTarget.value)}
          >
            <option value="">{words.all}</option>
            <option value="live">{texts.environment.live}</option>
            <option value="test">{texts.environment.test}</option>
          </select>
        </label>
        <label>
          {words.currency}{' '}
          <input
            size={4}
            maxLength={3}
            value={filters.currency ?? ''}
            onInput={({ currentTarget }) => filter('currency', currentTarget.value.toUpperCase())}
          />
        </label>
      </p>
      <WalletProblem error={error} me={me} />
      {data === undefined ? null : data.data.length > 0 ? (
        <Table caption={words.title} columns={words.columns}>
          {data.data.map((wallet) => (
            <tr key={wallet.id}>
              <th scope="row">
                <Link href={`/wallets/${wallet.id}`}>
                  <code>{wallet.id}</code>
                </Link>
              </th>
              <td>
                <Text>{wallet.merchantId}</Text>
              </td>
              <td>{texts.environment[wallet.environment]}</td>
              <td>{moneyText(wallet.balance, wallet.currency)}</td>
              <td>
                <Time at={wallet.createdAt} />
              </td>
            </tr>
          ))}
        </Table>
      ) : (
        <p className="empty">
          {words.noWallets}{' '}
          {given.length === 0 ? null : (
            <button type="button" onClick={() => setParameters({})}>
              {texts.clearFilters}
            </button>
          )}
        </p>
      )}
      <Pager
        page={page}
        pages={data?.meta?.total_pages ?? 1}
        onPage={(to) => setParameters({ ...filters, page: String(to) })}
      />
    </>
  );
}
