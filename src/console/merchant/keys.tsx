import { keepPreviousData, useQuery, useQueryClient } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { Link } from 'wouter';
import { type ApiKey, call, type Me, type Merchant } from '../api';
import { CreateKey, nameOf, ResetKey, RevokeKey } from './key-dialogs';
import { may } from '../frame';
import { inWords, Problem, Table, Text, Time } from '../elements';
import { Pager, TextFilter, useFilters } from '../fields';
import { texts } from '../texts';

type OpenDialog = { readonly kind: 'create' } | { readonly kind: 'reset' | 'revoke'; readonly key: ApiKey };

const filters = ['environment', 'status', 'label'] as const;

/** Lists the API keys of a merchant. */
export function KeysPage({ merchant, me }: { readonly merchant: Merchant; readonly me: Me }): ReactNode {
  const client = useQueryClient();
  const { page, given, query, isFiltered, set, clear } = useFilters(filters);
  const [dialog, setDialog] = useState<OpenDialog | null>(null);
  const { data, error } = useQuery({
    queryKey: ['keys', merchant.id, given, page],
    queryFn: ({ signal }) =>
      call<readonly ApiKey[]>(`/merchants/${merchant.id}/keys`, {
        query: { page, per_page: 50, ...query },
        signal,
      }),
    placeholderData: keepPreviousData,
  });
  const changed = (): void => void client.invalidateQueries({ queryKey: ['keys'] });
  return (
    <>
      <div className="title">
        <h1>{texts.keys.title}</h1>
        {may(me, 'keys:create') ? (
          <button type="button" className="main" onClick={() => setDialog({ kind: 'create' })}>
            {texts.keys.create}
          </button>
        ) : null}
      </div>
      <div className="filters">
        <TextFilter label={texts.keys.filters.label} value={given.label} onChange={(value) => set('label', value)} />
        <label>
          {texts.keys.filters.environment}{' '}
          <select value={given.environment} onChange={({ currentTarget }) => set('environment', currentTarget.value)}>
            <option value="">{texts.keys.filters.all}</option>
            <option value="live">{texts.environment.live}</option>
            <option value="test">{texts.environment.test}</option>
          </select>
        </label>
        <label>
          {texts.keys.filters.status}{' '}
          <select value={given.status} onChange={({ currentTarget }) => set('status', currentTarget.value)}>
            <option value="">{texts.keys.filters.all}</option>
            <option value="ACTIVE">{texts.keys.active}</option>
            <option value="REVOKED">{texts.keys.revoked}</option>
          </select>
        </label>
      </div>
      <Problem error={error} roles={me.roles.join(', ')} />
      {data === undefined ? null : data.meta?.total_records === 0 ? (
        <NoKeys isFiltered={isFiltered} onClear={clear} />
      ) : (
        <Table caption={texts.keys.title} columns={texts.keys.columns}>
          {data.data.map((key) => (
            <KeyRow key={key.keyId} of={key} me={me} onAct={(kind) => setDialog({ kind, key })} />
          ))}
        </Table>
      )}
      <Pager meta={data?.meta} />
      {dialog === null ? null : (
        // Render the dialog outside the table. Otherwise a reload of the rows would remove the dialog, and with it a
        // new key that is shown only once.
        <KeyDialog
          open={dialog}
          merchant={merchant}
          me={me}
          onClose={() => {
            setDialog(null);
            changed();
          }}
        />
      )}
    </>
  );
}

function KeyDialog({
  open,
  ...others
}: {
  readonly open: OpenDialog;
  readonly merchant: Merchant;
  readonly me: Me;
  readonly onClose: () => void;
}): ReactNode {
  if (open.kind === 'create') return <CreateKey {...others} />;
  if (open.kind === 'reset') return <ResetKey of={open.key} {...others} />;
  const { me, onClose } = others;
  const { keyId } = open.key;
  return (
    <RevokeKey
      {...{ keyId, name: nameOf(open.key), me, onClose }}
      revoke={(reason) => call(`/keys/${keyId}/revoke`, { method: 'POST', reason })}
    />
  );
}

function NoKeys({ isFiltered, onClear }: { readonly isFiltered: boolean; readonly onClear: () => void }): ReactNode {
  if (!isFiltered) {
    return (
      <p className="empty">
        <strong>{texts.keys.empty}</strong> {texts.keys.emptyHelp}
      </p>
    );
  }
  return (
    <p className="empty">
      {texts.keys.noMatch}{' '}
      <button type="button" onClick={onClear}>
        {texts.clearFilters}
      </button>
    </p>
  );
}

function KeyRow({
  of: key,
  me,
  onAct,
}: {
  readonly of: ApiKey;
  readonly me: Me;
  readonly onAct: (kind: 'reset' | 'revoke') => void;
}): ReactNode {
  const isOpen = key.status === 'ACTIVE' && (key.expiresAt === null || Date.parse(key.expiresAt) > Date.now());
  const actions = [
    ...(isOpen && may(me, 'keys:create') ? [['reset', texts.keys.reset] as const] : []),
    ...(isOpen && may(me, 'keys:revoke') ? [['revoke', texts.keys.revoke] as const] : []),
  ];
  return (
    <tr>
      <th scope="row">{key.label === null ? '–' : <Text>{key.label}</Text>}</th>
      <td>
        <code title={key.keyId}>{key.prefix}…</code> <span className="kind">{texts.environment[key.environment]}</span>
        <br />
        <small className="id">{key.keyId}</small>
      </td>
      <td>{key.permissions.includes('*') ? texts.keys.everything : key.permissions.join(', ')}</td>
      <td>
        <Time at={key.createdAt} />
        {key.createdBy ? (
          <>
            <br />
            <small>
              <Text>{texts.keys.by(key.createdBy)}</Text>
            </small>
          </>
        ) : null}
      </td>
      <td>{key.expiresAt === null ? texts.never : <Time at={key.expiresAt} />}</td>
      <td>
        {key.lastUse ? (
          <>
            <Time at={key.lastUse.at} />
            <br />
            <small>{key.lastUse.address}</small>
          </>
        ) : (
          texts.never
        )}
      </td>
      <td>
        <span className={`status ${isOpen ? 'good' : 'ended'}`}>{statusOf(key)}</span>
      </td>
      <td className="actions">
        {may(me, 'usage:read') ? (
          <Link
            href={`/merchants/${key.merchantId}/activity?key=${key.keyId}`}
            aria-label={texts.keys.named(texts.keys.activity, nameOf(key))}
          >
            {texts.keys.activity}
          </Link>
        ) : null}
        {actions.map(([kind, text]) => (
          <button key={kind} type="button" aria-label={texts.keys.named(text, nameOf(key))} onClick={() => onAct(kind)}>
            {text}
          </button>
        ))}
      </td>
    </tr>
  );
}

function statusOf({ status, expiresAt }: ApiKey): string {
  if (status !== 'ACTIVE') return status === 'REVOKED' ? texts.keys.revoked : status;
  if (expiresAt === null) return texts.keys.active;
  return Date.parse(expiresAt) <= Date.now() ? texts.keys.expired : texts.keys.endsIn(inWords(expiresAt));
}
