import { useQuery } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { call, type Me } from '../api';
import { about, ChangeProblem, FormDialog, useChange } from '../change';
import { Dialog } from '../elements';
import { Choice, TextField } from '../fields';
import { SecretOnce } from '../shown-once';
import { texts } from '../texts';

/** An administrator, as the admin API shows it. */
export interface Administrator {
  readonly id: string;
  readonly name: string;
  readonly kind: 'person' | 'machine';
  readonly status: string;
  readonly roles: readonly string[];
  readonly merchantId: string | null;
  readonly subject: string | null;
  readonly version: number;
}

interface Role {
  readonly name: string;
  readonly description: string;
  readonly isOfMember: boolean;
}

interface DialogProps {
  readonly me: Me;
  readonly onClose: () => void;
}

/** Creates an administrator of the platform. Members of a merchant are invited on the merchant's own page instead. */
export function NewAdministrator({ me, onClose }: DialogProps): ReactNode {
  const [name, setName] = useState('');
  const [kind, setKind] = useState<keyof typeof texts.administrators.kinds>('person');
  const [roles, setRoles] = useState<readonly string[]>([]);
  const sent = useChange<unknown>();
  const words = texts.administrators;
  const create = (): void => {
    const body = { name, kind, roles };
    sent.send((reason) => call('/administrators', { method: 'POST', body, reason }), onClose);
  };
  return (
    <FormDialog title={words.create} action={words.create} {...{ me, sent, onClose }} onSend={create}>
      <TextField
        {...{ label: words.name, help: words.nameHelp, problem: about(sent.error, 'name'), value: name }}
        {...{ maxLength: 64, required: true, autoFocus: true, onChange: setName }}
      />
      <Choice label={words.kind} options={words.kinds} value={kind} onChange={setKind} />
      <Roles ofMember={false} value={roles} onChange={setRoles} problem={about(sent.error, 'roles')} />
    </FormDialog>
  );
}

/** Changes the roles of an administrator, or disables or enables the administrator. */
export function ChangeAdministrator({ me, of, onClose }: DialogProps & { readonly of: Administrator }): ReactNode {
  const [roles, setRoles] = useState<readonly string[]>(of.roles);
  const sent = useChange<unknown>();
  // The field that was sent last. A retry sends its current value, which the form shows.
  const [last, setLast] = useState<'roles' | 'status'>('roles');
  const words = texts.administrators;
  const isActive = of.status === 'ACTIVE';
  const change = (field: 'roles' | 'status'): void => {
    setLast(field);
    const changed = field === 'roles' ? { roles } : { status: isActive ? 'DISABLED' : 'ACTIVE' };
    const body = { ...changed, version: of.version };
    sent.send((reason) => call(`/administrators/${of.id}`, { method: 'PATCH', body, reason }), onClose, field);
  };
  const { error, isBusy } = sent;
  return (
    <Dialog title={words.changeTitle(of.name)} {...{ isBusy, onClose }}>
      <Roles ofMember={of.merchantId !== null} value={roles} onChange={setRoles} problem={about(error, 'roles')} />
      <p className="help">{isActive ? words.disableHelp : words.enableHelp}</p>
      <ChangeProblem {...{ sent, me }} onRetry={() => change(last)} />
      <p className="buttons">
        <button type="button" disabled={isBusy} onClick={onClose}>
          {texts.cancel}
        </button>
        <button type="button" className={isActive ? 'danger' : ''} disabled={isBusy} onClick={() => change('status')}>
          {isActive ? words.disable : words.enable}
        </button>
        <button type="button" className="main" disabled={isBusy || roles.length === 0} onClick={() => change('roles')}>
          {texts.save}
        </button>
      </p>
    </Dialog>
  );
}

/** Creates a link with which another administrator can sign in once. Shows the link only once. */
export function LinkFor({ me, of, onClose }: DialogProps & { readonly of: Administrator }): ReactNode {
  const sent = useChange<{ readonly url: string }>();
  const words = texts.administrators;
  if (sent.result !== null) {
    const { once } = words;
    return <SecretOnce secret={sent.result.url} words={{ ...once, text: once.text(of.name) }} onClose={onClose} />;
  }
  const create = (): void => {
    const body = { administrator: of.id };
    sent.send(
      async (reason) => (await call<{ readonly url: string }>('/console-links', { method: 'POST', body, reason })).data,
    );
  };
  return (
    <FormDialog title={words.linkTitle(of.name)} action={words.createLink} {...{ me, sent, onClose }} onSend={create}>
      <p>{words.linkText}</p>
    </FormDialog>
  );
}

function Roles({
  ofMember,
  value,
  onChange,
  problem,
}: {
  readonly ofMember: boolean;
  readonly value: readonly string[];
  readonly onChange: (roles: readonly string[]) => void;
  readonly problem: string | undefined;
}): ReactNode {
  const { data } = useQuery({
    queryKey: ['roles'],
    queryFn: async ({ signal }) => (await call<readonly Role[]>('/roles', { signal })).data,
  });
  return (
    <fieldset>
      <legend>{texts.administrators.roles}</legend>
      {(data ?? [])
        .filter(({ isOfMember }) => isOfMember === ofMember)
        .map(({ name, description }) => (
          <label key={name} className="choice">
            <input
              type="checkbox"
              checked={value.includes(name)}
              onChange={({ currentTarget }) => {
                const others = value.filter((one) => one !== name);
                onChange(currentTarget.checked ? [...others, name] : others);
              }}
            />{' '}
            {name}: {description}
          </label>
        ))}
      {problem === undefined ? null : <p className="problem">{problem}</p>}
    </fieldset>
  );
}
