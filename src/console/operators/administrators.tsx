import { keepPreviousData, useQuery, useQueryClient } from '@tanstack/react-query';
import { Fragment, type ReactNode, useState } from 'react';
import { Link, useSearchParams } from 'wouter';
import { call } from '../api';
import { Problem, Table, Text } from '../elements';
import { Pager, usePage } from '../fields';
import { may, useMe } from '../frame';
import { texts } from '../texts';
import { type Administrator, ChangeAdministrator, LinkFor, NewAdministrator } from './administrator-dialogs';

type OpenDialog =
  { readonly kind: 'create' } | { readonly kind: 'change' | 'link'; readonly administrator: Administrator };

/** Lists the people and programs that may use the admin API and the console, with their roles. */
export function AdministratorsPage(): ReactNode {
  const { me } = useMe();
  const client = useQueryClient();
  const [parameters] = useSearchParams();
  const [dialog, setDialog] = useState<OpenDialog | null>(null);
  const [page, merchantId] = [usePage(), parameters.get('merchant') ?? ''];
  const { data, error } = useQuery({
    queryKey: ['administrators', page, merchantId],
    queryFn: ({ signal }) =>
      call<readonly Administrator[]>('/administrators', {
        query: { page, per_page: 50, merchantId: merchantId || undefined },
        signal,
      }),
    placeholderData: keepPreviousData,
  });
  const words = texts.administrators;
  if (me === undefined) return null;
  const mayChange = may(me, 'administrators:write');
  const close = (): void => {
    setDialog(null);
    void client.invalidateQueries({ queryKey: ['administrators'] });
  };
  return (
    <>
      <div className="title">
        <h1>{words.title}</h1>
        {mayChange ? (
          <button type="button" className="main" onClick={() => setDialog({ kind: 'create' })}>
            {words.create}
          </button>
        ) : null}
      </div>
      <Problem error={error} roles={me.roles.join(', ')} />
      {data === undefined ? null : (
        <Table caption={words.title} columns={words.columns}>
          {data.data.map((one) => (
            <tr key={one.id}>
              <th scope="row">
                <Text>{one.name}</Text>
                <br />
                <small className="id">{one.id}</small>
              </th>
              <td>{words.kinds[one.kind]}</td>
              <td>{one.roles.join(', ')}</td>
              <td>
                {one.merchantId === null ? (
                  words.allMerchants
                ) : (
                  <Link href={`/merchants/${one.merchantId}/members`}>{one.merchantId}</Link>
                )}
              </td>
              <td>
                <span className={`status ${one.status === 'ACTIVE' ? 'good' : 'ended'}`}>{one.status}</span>
              </td>
              <td>{one.subject === null ? words.noSignIn : <Text>{one.subject}</Text>}</td>
              <td className="actions">
                {may(me, 'administrators:read')
                  ? (['tokens', 'sessions'] as const).map((list) => (
                      <Fragment key={list}>
                        <Link
                          href={`/administrators/${one.id}/${list}`}
                          aria-label={texts.keys.named(words[list], one.name)}
                        >
                          {words[list]}
                        </Link>{' '}
                      </Fragment>
                    ))
                  : null}
                {mayChange
                  ? (['link', 'change'] as const)
                      .filter((kind) => kind === 'change' || one.kind === 'person')
                      .map((kind) => (
                        <button
                          key={kind}
                          type="button"
                          aria-label={texts.keys.named(words[kind], one.name)}
                          onClick={() => setDialog({ kind, administrator: one })}
                        >
                          {words[kind]}
                        </button>
                      ))
                  : null}
              </td>
            </tr>
          ))}
        </Table>
      )}
      <Pager meta={data?.meta} />
      {dialog === null ? null : dialog.kind === 'create' ? (
        <NewAdministrator me={me} onClose={close} />
      ) : dialog.kind === 'link' ? (
        <LinkFor me={me} of={dialog.administrator} onClose={close} />
      ) : (
        <ChangeAdministrator me={me} of={dialog.administrator} onClose={close} />
      )}
    </>
  );
}
