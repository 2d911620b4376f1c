import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { Link, useLocation } from 'wouter';
import { ApiProblem, call, type Merchant } from '../api';
import { CommandLine, Dialog, Pager, Problem, Table, Text, Time } from '../elements';
import { Field, TextFilter, useFilters } from '../fields';
import { may, useMe } from '../frame';
import { texts } from '../texts';

const number = new Intl.NumberFormat();

const filters = ['name'] as const;

/** Lists all merchants, for operators. */
export function MerchantsPage(): ReactNode {
  const { me } = useMe();
  const [isCreating, setIsCreating] = useState(false);
  const { page, given, isFiltered, set, clear } = useFilters(filters);
  const { data, error } = useQuery({
    queryKey: ['merchants', 'list', page, given],
    queryFn: ({ signal }) =>
      call<readonly Merchant[]>('/merchants', { query: { page, per_page: 50, ...given }, signal }),
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
      {data === undefined ? null : data.data.length > 0 ? (
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
      <Pager page={page} pages={data?.meta?.total_pages ?? 1} onPage={(to) => set('page', String(to))} />
      {isCreating ? <NewMerchant onClose={() => setIsCreating(false)} /> : null}
    </>
  );
}

function shownCount(count: number | undefined): string {
  return count === undefined ? texts.unknown : number.format(count);
}

function NewMerchant({ onClose }: { readonly onClose: () => void }): ReactNode {
  const [, navigate] = useLocation();
  const [name, setName] = useState('');
  const [state, setState] = useState<{ readonly error: unknown; readonly isBusy: boolean }>({
    error: null,
    isBusy: false,
  });
  const create = async (): Promise<void> => {
    setState({ error: null, isBusy: true });
    try {
      const { data } = await call<Merchant>('/merchants', { method: 'POST', body: { name, status: 'ACTIVE' } });
      navigate(`/merchants/${data.id}/keys`);
    } catch (error) {
      setState({ error, isBusy: false });
    }
  };
  return (
    <Dialog title={texts.merchants.create} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void create();
        }}
      >
        <Field
          label={texts.merchants.name}
          problem={state.error instanceof ApiProblem ? state.error.about('name') : undefined}
        >
          {(ids) => (
            <input
              {...ids}
              value={name}
              maxLength={100}
              required
              autoFocus
              onInput={({ currentTarget }) => setName(currentTarget.value)}
            />
          )}
        </Field>
        <Problem error={state.error} />
        <p className="buttons">
          <button type="button" onClick={onClose}>
            {texts.cancel}
          </button>
          <button type="submit" className="main" disabled={state.isBusy}>
            {texts.merchants.create}
          </button>
        </p>
      </form>
    </Dialog>
  );
}
