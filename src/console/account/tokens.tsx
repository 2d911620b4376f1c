import { keepPreviousData, useQuery, useQueryClient } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { call, type Me } from '../api';
import { about, FormDialog, useChange } from '../change';
import { Problem, Table, Text, Time } from '../elements';
import { Choice, Pager, TextField, usePage } from '../fields';
import { SecretOnce } from '../shown-once';
import { texts } from '../texts';

interface Token {
  readonly id: string;
  readonly name: string;
  readonly kind: string;
  readonly roles: readonly string[] | null;
  readonly sources: readonly string[] | null;
  readonly createdAt: string;
  readonly expiresAt: string;
  readonly revokedAt: string | null;
  readonly lastUsedAt: string | null;
  readonly lastSource: string | null;
}

/**
 * Lists the tokens for the command line and for programs: those of the signed-in person, or of the administrator `of`.
 */
export function TokensPage({ me, of = null }: { readonly me: Me; readonly of?: string | null }): ReactNode {
  const client = useQueryClient();
  const [isCreating, setIsCreating] = useState(false);
  const [revoked, setRevoked] = useState<Token | null>(null);
  const page = usePage();
  const { data, error } = useQuery({
    queryKey: ['tokens', of, page],
    queryFn: ({ signal }) =>
      call<readonly Token[]>('/tokens', {
        query: { page, per_page: 50, ...(of === null ? {} : { administratorId: of }) },
        signal,
      }),
    placeholderData: keepPreviousData,
  });
  const words = texts.tokens;
  const close = (): void => {
    setIsCreating(false);
    setRevoked(null);
    void client.invalidateQueries({ queryKey: ['tokens'] });
  };
  return (
    <>
      <div className="title">
        <h1>{of === null ? words.title : words.titleOf(of)}</h1>
        <button type="button" className="main" onClick={() => setIsCreating(true)}>
          {words.create}
        </button>
      </div>
      <Problem error={error} roles={me.roles.join(', ')} />
      {data === undefined ? null : data.meta?.total_records === 0 ? (
        <p className="empty">{words.empty}</p>
      ) : (
        <Table caption={words.title} columns={words.columns}>
          {data.data.map((token) => (
            <tr key={token.id}>
              <th scope="row">
                <Text>{token.name}</Text>
                <br />
                <small className="id">{token.id}</small>
              </th>
              <td>{token.roles === null ? words.allRoles : token.roles.join(', ')}</td>
              <td>{token.sources === null ? words.anywhere : token.sources.join(', ')}</td>
              <td>
                <Time at={token.createdAt} />
              </td>
              <td>
                <Time at={token.expiresAt} />
              </td>
              <td>
                {token.lastUsedAt === null ? texts.never : <Time at={token.lastUsedAt} />} {token.lastSource ?? ''}
              </td>
              <td className="actions">
                {isOpen(token) ? (
                  <button
                    type="button"
                    aria-label={texts.keys.named(words.revoke, token.name)}
                    onClick={() => setRevoked(token)}
                  >
                    {words.revoke}
                  </button>
                ) : token.revokedAt === null ? (
                  texts.keys.expired
                ) : (
                  texts.keys.revoked
                )}
              </td>
            </tr>
          ))}
        </Table>
      )}
      <Pager meta={data?.meta} />
      {isCreating ? <CreateToken {...{ me, of }} onClose={close} /> : null}
      {revoked === null ? null : <RevokeToken {...{ me, token: revoked }} onClose={close} />}
    </>
  );
}

function isOpen({ revokedAt, expiresAt }: Token): boolean {
  return revokedAt === null && Date.parse(expiresAt) > Date.now();
}

const lives = { '1': 86_400, '30': 30 * 86_400, '90': 90 * 86_400, '365': 365 * 86_400 } as const;

function CreateToken({
  me,
  of,
  onClose,
}: {
  readonly me: Me;
  readonly of: string | null;
  readonly onClose: () => void;
}): ReactNode {
  const [name, setName] = useState('');
  const [sources, setSources] = useState('');
  const [days, setDays] = useState<keyof typeof lives>('90');
  const sent = useChange<{ readonly token: string }>();
  const words = texts.tokens;
  if (sent.result !== null) return <SecretOnce secret={sent.result.token} words={words.once} onClose={onClose} />;
  const create = (): void => {
    const from = sources.split(/[\s,]+/).filter((one) => one !== '');
    const body = {
      ...{ name, expiresInSeconds: lives[days] },
      ...(from.length === 0 ? {} : { sources: from }),
      ...(of === null ? {} : { administratorId: of }),
    };
    sent.send(
      async (reason) => (await call<{ readonly token: string }>('/tokens', { method: 'POST', body, reason })).data,
    );
  };
  return (
    <FormDialog title={words.create} action={words.create} {...{ me, sent, onClose }} onSend={create}>
      <TextField
        {...{ label: words.name, help: words.nameHelp, problem: about(sent.error, 'name'), value: name }}
        {...{ maxLength: 64, required: true, autoFocus: true, onChange: setName }}
      />
      <Choice label={words.expires} options={words.expiries} value={days} onChange={setDays} />
      <TextField
        {...{ label: words.sources, help: words.sourcesHelp, problem: about(sent.error, 'sources') }}
        {...{ value: sources, onChange: setSources }}
      />
    </FormDialog>
  );
}

function RevokeToken({
  me,
  token,
  onClose,
}: {
  readonly me: Me;
  readonly token: Token;
  readonly onClose: () => void;
}): ReactNode {
  const sent = useChange<unknown>();
  const revoke = (): void => {
    sent.send((reason) => call(`/tokens/${token.id}/revoke`, { method: 'POST', reason }), onClose);
  };
  const words = texts.tokens;
  return (
    <FormDialog
      title={words.revokeTitle(token.name)}
      action={words.revoke}
      isDangerous
      {...{ me, sent, onClose }}
      onSend={revoke}
    >
      <p>{words.revokeText}</p>
    </FormDialog>
  );
}
