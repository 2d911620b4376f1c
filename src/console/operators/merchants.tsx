import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { Link, useLocation } from 'wouter';
import { call, type Me, type Merchant } from '../api';
import { about, FormDialog, useChange } from '../change';
import { CommandLine, Problem, Table, Text, Time } from '../elements';
import { Pager, TextField, TextFilter, useFilters } from '../fields';
import { may, useMe } from '../frame';
import { texts } from '../texts';

const number = new Intl.NumberFormat();

const filters = ['name'] as const;

/** Lists all merchants, for operators. */
export function MerchantsPage(): ReactNode {
  const { me } = useMe();
  const [isCreating, setIsCreating] = useState(false);
  const { page, given, query, isFiltered, set, clear } = useFilters(filters);
  const { data, error } = useQuery({
    queryKey: ['merchants', 'list', page, given],
    queryFn: ({ signal }) =>
      call<readonly Merchant[]>('/merchants', { query: { page, per_page: 50, ...query }, signal }),
    placeholderData: keepPreviousData,
  });
  return (
    <>
      <div className="title">
        <h1>{texts.merchants.title}</h1>
        {me !== undefined && may(me, 'merchants:create') ? (
          <button type="button" className="main" onClick={() => setIsCreating(true)}>
            {texts.merchants.create}
          </button>
        ) : null}
      </div>
      <div className="filters">
        <TextFilter label={texts.merchants.search} value={given.name} onChange={(value) => set('name', value)} />
      </div>
      <Problem error={error} roles={me?.roles.join(', ') ?? ''} />
      {data === undefined ? null : data.meta?.total_records !== 0 ? (
        <Table caption={texts.merchants.title} columns={texts.merchants.columns}>
          {data.data.map((merchant) => (
            <tr key={merchant.id}>
              <th scope="row">
                <Link href={`/merchants/${merchant.id}/keys`}>
                  <Text>{merchant.name}</Text>
                </Link>
              </th>
              <td>
                <code>{merchant.id}</code>
              </td>
              <td>
                <span className={`status ${merchant.status === 'ACTIVE' ? 'good' : 'ended'}`}>{merchant.status}</span>
              </td>
              <td>{shownCount(merchant.counts?.keys)}</td>
              <td>{shownCount(merchant.counts?.requests)}</td>
              <td>
                <Link href={`/merchants/${merchant.id}/activity`}>{shownCount(merchant.counts?.refused)}</Link>
              </td>
              <td>{merchant.goLive ? texts.merchants.live : texts.merchants.notLive}</td>
              <td>
                <Time at={merchant.createdAt} />
              </td>
            </tr>
          ))}
        </Table>
      ) : !isFiltered ? (
        <>
          <p className="empty">{texts.merchants.noMerchants}</p>
          <CommandLine>{texts.merchants.importCommand}</CommandLine>
        </>
      ) : (
        <p className="empty">
          {texts.merchants.noMatch}{' '}
          <button type="button" onClick={clear}>
            {texts.clearFilters}
          </button>
        </p>
      )}
      <Pager meta={data?.meta} />
      {isCreating && me !== undefined ? <NewMerchant me={me} onClose={() => setIsCreating(false)} /> : null}
    </>
  );
}

function shownCount(count: number | undefined): string {
  return count === undefined ? texts.unknown : number.format(count);
}

function NewMerchant({ me, onClose }: { readonly me: Me; readonly onClose: () => void }): ReactNode {
  const [, navigate] = useLocation();
  const [name, setName] = useState('');
  const sent = useChange<Merchant>();
  const words = texts.merchants;
  const create = (): void => {
    const body = { name, status: 'ACTIVE' };
    sent.send(
      async (reason) => (await call<Merchant>('/merchants', { method: 'POST', body, reason })).data,
      ({ id }) => navigate(`/merchants/${id}/keys`),
    );
  };
  return (
    <FormDialog title={words.create} action={words.create} {...{ me, sent, onClose }} onSend={create}>
      <TextField
        {...{ label: words.name, problem: about(sent.error, 'name'), value: name }}
        {...{ maxLength: 100, required: true, autoFocus: true, onChange: setName }}
      />
    </FormDialog>
  );
}
