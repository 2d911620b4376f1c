import { useQuery } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { call, type Merchant, type SeenAddress, type Verdict } from '../api';
import { Problem, Table } from '../elements';
import { texts } from '../texts';

const number = new Intl.NumberFormat();
const days = 30;
const dayMilliseconds = 86_400_000;
const words = texts.allowlists;

function monthAgo(): string {
  return new Date(Date.now() - days * dayMilliseconds).toISOString();
}

/**
 * Shows what each entry of an IP allowlist means, and which requests of the last month the list would have refused.
 * Loads this only when asked, because the API must read a whole month of requests.
 */
export function AllowlistVerdict({
  merchant,
  entries,
}: {
  readonly merchant: Merchant;
  readonly entries: readonly string[];
}): ReactNode {
  const [asked, setAsked] = useState<string | null>(null);
  const { data, error } = useQuery({
    queryKey: ['verdict', merchant.id, asked],
    enabled: asked !== null,
    queryFn: async ({ signal }) => {
      const query = { allow: asked ?? '', since: monthAgo() };
      return (await call<Verdict>(`/merchants/${merchant.id}/addresses/verdict`, { query, signal })).data;
    },
  });
  const list = entries.join(',');
  return (
    <div>
      <button type="button" onClick={() => setAsked(list)}>
        {words.check}
      </button>
      {asked === list ? <Problem error={error} /> : null}
      {asked !== list || data === undefined ? null : (
        <div role="status">
          <ul>
            {(data.entries ?? []).map(({ entry, addresses, concern }) => (
              <li key={entry}>
                <code>{entry}</code>: {concern ?? words.addressesOf(BigInt(addresses))}
              </li>
            ))}
          </ul>
          <p>
            {words.verdict(number.format(data.requests), number.format(data.refused.requests))}{' '}
            {data.uncertain === 0 ? '' : words.uncertain(number.format(data.uncertain))}
          </p>
          {data.addresses.length === 0 ? null : (
            <Table caption={words.check} columns={[words.addresses, texts.activity.accepted]}>
              {data.addresses.map(({ address, country, requests }) => (
                <tr key={address}>
                  <th scope="row">
                    {address} {country ?? ''}
                  </th>
                  <td>{number.format(requests)}</td>
                </tr>
              ))}
            </Table>
          )}
        </div>
      )}
    </div>
  );
}

/**
 * Buttons that add addresses to an allowlist: the address of this browser, or those of last month's accepted requests.
 */
export function AddAddresses({
  merchant,
  own,
  entries,
  onAdd,
}: {
  readonly merchant: Merchant;
  /** The address of this browser; null if unknown. */
  readonly own: string | null;
  readonly entries: readonly string[];
  readonly onAdd: (addresses: readonly string[]) => void;
}): ReactNode {
  const [problem, setProblem] = useState<unknown>(null);
  const [added, setAdded] = useState<number | null>(null);
  const addSeen = async (): Promise<void> => {
    setProblem(null);
    try {
      const query = { since: monthAgo(), per_page: 100 };
      const { data } = await call<readonly SeenAddress[]>(`/merchants/${merchant.id}/addresses`, { query });
      const seen = data.flatMap(({ address, accepted }) => (address === null || accepted === 0 ? [] : [address]));
      const missing = [...new Set(seen)].filter((address) => !entries.includes(address));
      setAdded(missing.length);
      onAdd(missing);
    } catch (error) {
      setProblem(error);
    }
  };
  return (
    <>
      <p className="buttons">
        {own === null || entries.includes(own) ? null : (
          <button type="button" onClick={() => onAdd([own])}>
            {words.addMine(own)}
          </button>
        )}
        <button type="button" onClick={() => void addSeen()}>
          {words.addSeen}
        </button>
        <span role="status">{added === null ? '' : words.added(added)}</span>
      </p>
      <Problem error={problem} />
    </>
  );
}
