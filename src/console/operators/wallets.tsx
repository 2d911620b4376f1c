import { keepPreviousData, useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { Link } from 'wouter';
import { call } from '../api';
import { Table, Text, Time } from '../elements';
import { Pager, TextFilter, useFilters } from '../fields';
import { useMe } from '../frame';
import { texts } from '../texts';
import { type Wallet, WalletProblem } from './fund-wallet';
import { moneyText } from './money';

const words = texts.wallets;
const filterNames = ['merchantId', 'environment', 'currency'] as const;

/** Lists the wallets of all merchants. */
export function WalletsPage(): ReactNode {
  const { me } = useMe();
  const { page, given, query, isFiltered, set, clear } = useFilters(filterNames);
  const { data, error } = useQuery({
    queryKey: ['wallets', 'list', page, given],
    queryFn: ({ signal }) =>
      call<readonly Wallet[]>('/wallets', {
        // Ignore the currency until the person has typed all three letters.
        query: { ...query, page, per_page: 50, currency: given.currency.length === 3 ? given.currency : undefined },
        signal,
      }),
    placeholderData: keepPreviousData,
  });
  return (
    <>
      <h1>{words.title}</h1>
      <div className="filters">
        <TextFilter label={words.merchant} value={given.merchantId} onChange={(value) => set('merchantId', value)} />
        <label>
          {words.environment}{' '}
          <select value={given.environment} onChange={({ currentTarget }) => set('environment', currentTarget.value)}>
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
            value={given.currency}
            onInput={({ currentTarget }) => set('currency', currentTarget.value.toUpperCase())}
          />
        </label>
      </div>
      <WalletProblem error={error} me={me} />
      {data === undefined ? null : data.meta?.total_records !== 0 ? (
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
          {!isFiltered ? null : (
            <button type="button" onClick={clear}>
              {texts.clearFilters}
            </button>
          )}
        </p>
      )}
      <Pager meta={data?.meta} />
    </>
  );
}
