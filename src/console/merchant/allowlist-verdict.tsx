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
 * Shows what each entry of an IP allowlist means, and how many accepted requests of the last 30 days the list would
 * have refused. Loads the data only when the person asks for it, because the API must read a whole month of requests.
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
 * Returns the addresses of all accepted requests of the last 30 days. `areAll` is false if some addresses are missing,
 * because the registry did not store them.
 */
async function seenAddresses(
  merchantId: string,
): Promise<{ readonly addresses: readonly string[]; readonly areAll: boolean }> {
  const seen = new Set<string | null>();
  const since = monthAgo();
  for (let [page, pages] = [1, 1]; page <= pages; page += 1) {
    const query = { since, page, per_page: 100 };
    const { data, meta } = await call<readonly SeenAddress[]>(`/merchants/${merchantId}/addresses`, { query });
    for (const { address, accepted } of data) if (accepted > 0) seen.add(address);
    pages = meta?.total_pages ?? 1;
  }
  return { addresses: [...seen].filter((address) => address !== null), areAll: !seen.has(null) };
}

/**
 * Buttons that add addresses to an allowlist: the address of this browser, or addresses of accepted requests in the
 * last 30 days.
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
  const [added, setAdded] = useState<{ readonly count: number; readonly areAll: boolean } | null>(null);
  const addSeen = async (): Promise<void> => {
    setProblem(null);
    try {
      const { addresses, areAll } = await seenAddresses(merchant.id);
      const missing = addresses.filter((address) => !entries.includes(address));
      setAdded({ count: missing.length, areAll });
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
        <span role="status">
          {added === null ? '' : words.added(added.count)} {added?.areAll === false ? words.onlyCounted : ''}
        </span>
      </p>
      <Problem error={problem} />
    </>
  );
}
