import { keepPreviousData, useQuery, useQueryClient } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { call, type Me, type Merchant } from '../api';
import { about, ChangeProblem, FormDialog, useChange } from '../change';
import { Dialog, Problem, Table, Text, Time } from '../elements';
import { Choice, Pager, TextField, usePage } from '../fields';
import { may } from '../frame';
import { SecretOnce } from '../shown-once';
import { texts } from '../texts';

interface Member {
  readonly id: string;
  readonly name: string;
  readonly status: string;
  readonly roles: readonly string[];
  readonly hasSignIn: boolean;
  readonly createdAt: string;
  readonly version: number;
}

type Role = keyof typeof texts.members.roles;

type OpenDialog = { readonly kind: 'invite' } | { readonly kind: 'change' | 'link'; readonly member: Member };

/** Lists the people of a merchant, who see only this merchant. */
export function MembersPage({ merchant, me }: { readonly merchant: Merchant; readonly me: Me }): ReactNode {
  const client = useQueryClient();
  const [dialog, setDialog] = useState<OpenDialog | null>(null);
  const page = usePage();
  const { data, error } = useQuery({
    queryKey: ['members', merchant.id, page],
    queryFn: ({ signal }) =>
      call<readonly Member[]>(`/merchants/${merchant.id}/members`, { query: { page, per_page: 50 }, signal }),
    placeholderData: keepPreviousData,
  });
  const words = texts.members;
  const mayChange = may(me, 'members:write');
  const close = (): void => {
    setDialog(null);
    void client.invalidateQueries({ queryKey: ['members'] });
  };
  return (
    <>
      <div className="title">
        <h1>{words.title}</h1>
        {mayChange ? (
          <button type="button" className="main" onClick={() => setDialog({ kind: 'invite' })}>
            {words.invite}
          </button>
        ) : null}
      </div>
      <p className="help">{words.help}</p>
      <Problem error={error} roles={me.roles.join(', ')} />
      {data === undefined ? null : data.meta?.total_records === 0 ? (
        <p className="empty">{words.empty}</p>
      ) : (
        <Table caption={words.title} columns={words.columns}>
          {data.data.map((member) => (
            <tr key={member.id}>
              <th scope="row">
                <Text>{member.name}</Text> {member.name === me.name ? <span className="kind">{words.you}</span> : null}
              </th>
              <td>{member.roles.map((role) => roleName(role)).join(', ')}</td>
              <td>
                <span className={`status ${member.status === 'ACTIVE' ? 'good' : 'ended'}`}>
                  {member.status === 'ACTIVE' ? words.active : words.disabled}
                </span>
              </td>
              <td>{member.hasSignIn ? words.withProvider : words.withLinks}</td>
              <td>
                <Time at={member.createdAt} />
              </td>
              <td className="actions">
                {mayChange && member.name !== me.name
                  ? (['link', 'change'] as const).map((kind) => (
                      <button
                        key={kind}
                        type="button"
                        aria-label={texts.keys.named(words[kind], member.name)}
                        onClick={() => setDialog({ kind, member })}
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
      {dialog === null ? null : dialog.kind === 'invite' ? (
        <Invite {...{ merchant, me }} onClose={close} />
      ) : dialog.kind === 'link' ? (
        <NewLink {...{ merchant, me, member: dialog.member }} onClose={close} />
      ) : (
        <ChangeMember {...{ merchant, me, member: dialog.member }} onClose={close} />
      )}
    </>
  );
}

/** Returns the name to show for a role. If this page does not know the role, returns the API's name. */
function roleName(role: string): string {
  return (texts.members.roles as Readonly<Record<string, string>>)[role] ?? role;
}

interface DialogProps {
  readonly merchant: Merchant;
  readonly me: Me;
  readonly onClose: () => void;
}

interface Invited {
  readonly name: string;
  readonly url: string;
}

async function linkFor(
  merchant: Merchant,
  { id, name }: Pick<Member, 'id' | 'name'>,
  reason: string | undefined,
): Promise<Invited> {
  const path = `/merchants/${merchant.id}/members/${id}/links`;
  return { name, url: (await call<{ readonly url: string }>(path, { method: 'POST', reason })).data.url };
}

function Invite({ merchant, me, onClose }: DialogProps): ReactNode {
  const [name, setName] = useState('');
  const [role, setRole] = useState<Role>('merchant-viewer');
  const [added, setAdded] = useState<Member | null>(null);
  const sent = useChange<Invited>();
  const words = texts.members;
  if (sent.result !== null) return <LinkOnce invited={sent.result} onClose={onClose} />;
  const invite = (): void => {
    sent.send(async (reason) => {
      // If the member was added but creating the link failed, the next attempt must not add the member again.
      const [path, body] = [`/merchants/${merchant.id}/members`, { name, role }];
      const member = added ?? (await call<Member>(path, { method: 'POST', body, reason })).data;
      setAdded(member);
      return linkFor(merchant, member, reason);
    });
  };
  return (
    <FormDialog title={words.invite} action={words.create} {...{ me, sent, onClose }} onSend={invite}>
      <TextField
        {...{ label: words.name, help: words.nameHelp, problem: about(sent.error, 'name'), value: name }}
        {...{ maxLength: 64, required: true, autoFocus: true, readOnly: added !== null, onChange: setName }}
      />
      <Choice label={words.role} options={words.roles} value={role} onChange={setRole} disabled={added !== null} />
    </FormDialog>
  );
}

function NewLink({ merchant, me, member, onClose }: DialogProps & { readonly member: Member }): ReactNode {
  const sent = useChange<Invited>();
  const words = texts.members;
  if (sent.result !== null) return <LinkOnce invited={sent.result} onClose={onClose} />;
  return (
    <FormDialog
      title={words.linkTitle(member.name)}
      action={words.create}
      {...{ me, sent, onClose }}
      onSend={() => sent.send((reason) => linkFor(merchant, member, reason))}
    >
      <p>{words.linkText}</p>
    </FormDialog>
  );
}

function LinkOnce({ invited: { name, url }, onClose }: { readonly invited: Invited; readonly onClose: () => void }) {
  const { once } = texts.members;
  return <SecretOnce secret={url} words={{ ...once, text: once.text(name) }} onClose={onClose} />;
}

function ChangeMember({ merchant, me, member, onClose }: DialogProps & { readonly member: Member }): ReactNode {
  const [role, setRole] = useState<Role>(
    member.roles.includes('merchant-admin') ? 'merchant-admin' : 'merchant-viewer',
  );
  const sent = useChange<unknown>();
  // The field that was sent last. A retry sends its current value, which the form shows.
  const [last, setLast] = useState<'role' | 'status'>('role');
  const words = texts.members;
  const isActive = member.status === 'ACTIVE';
  const change = (field: 'role' | 'status'): void => {
    setLast(field);
    const path = `/merchants/${merchant.id}/members/${member.id}`;
    const changed = field === 'role' ? { role } : { status: isActive ? 'DISABLED' : 'ACTIVE' };
    const body = { ...changed, version: member.version };
    sent.send((reason) => call(path, { method: 'PATCH', body, reason }), onClose, field);
  };
  const { isBusy } = sent;
  return (
    <Dialog title={words.changeTitle(member.name)} {...{ isBusy, onClose }}>
      <Choice label={words.role} options={words.roles} value={role} onChange={setRole} />
      <p className="help">{isActive ? words.disableHelp : words.enableHelp}</p>
      <ChangeProblem {...{ sent, me }} onRetry={() => change(last)} />
      <p className="buttons">
        <button type="button" autoFocus disabled={isBusy} onClick={onClose}>
          {texts.cancel}
        </button>
        <button type="button" className={isActive ? 'danger' : ''} disabled={isBusy} onClick={() => change('status')}>
          {isActive ? words.disable : words.enable}
        </button>
        <button
          type="button"
          className="main"
          disabled={isBusy || member.roles.includes(role)}
          onClick={() => change('role')}
        >
          {texts.save}
        </button>
      </p>
    </Dialog>
  );
}
