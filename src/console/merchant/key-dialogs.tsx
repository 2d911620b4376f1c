import { useQuery } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { type ApiKey, call, type CreatedKey, type Me, type Merchant, type Propagation, type Success } from '../api';
import { Dialog, focusNow, inWords } from '../elements';
import { Choice, TextField } from '../fields';
import { InForce, ShownOnce } from './shown-once';
import { about, ChangeProblem, FormDialog, useChange } from '../change';
import { texts } from '../texts';

/** Returns the name to show for a key: its label, or its id if it has no label. */
export function nameOf({ label, keyId }: ApiKey): string {
  return label ?? keyId;
}

interface DialogProps {
  readonly merchant: Merchant;
  readonly me: Me;
  readonly onClose: () => void;
}

/** Creates a key, and shows it once. */
export function CreateKey({ merchant, me, onClose }: DialogProps): ReactNode {
  const [label, setLabel] = useState('');
  const [environment, setEnvironment] = useState<'test' | 'live'>('test');
  const [kind, setKind] = useState<'everything' | 'choose'>('everything');
  const [permissions, setPermissions] = useState('');
  const [expiresIn, setExpiresIn] = useState<keyof typeof texts.createKey.expiries>('');
  const sent = useChange<CreatedKey>();
  if (sent.result !== null) return <ShownOnce created={sent.result} onClose={onClose} />;
  const create = (): void => {
    const body = {
      environment,
      ...(label === '' ? {} : { label }),
      ...(kind === 'everything' ? {} : { permissions: permissions.split(/\s+/).filter((one) => one !== '') }),
      ...(expiresIn === '' ? {} : { expiresIn }),
    };
    sent.send(
      async (reason) =>
        (await call<CreatedKey>(`/merchants/${merchant.id}/keys`, { method: 'POST', body, reason })).data,
    );
  };
  const words = texts.createKey;
  return (
    <FormDialog title={words.title} action={texts.keys.create} {...{ me, sent, onClose }} onSend={create}>
      <TextField
        {...{ label: words.label, help: words.labelHelp, problem: about(sent.error, 'label'), value: label }}
        {...{ maxLength: 100, autoFocus: true, onChange: setLabel }}
      />
      <Choice
        label={words.environment}
        options={{ test: words.test, live: words.live }}
        value={environment}
        onChange={setEnvironment}
        help={environment === 'live' && !merchant.goLive ? words.notLive : undefined}
      />
      <Choice
        label={words.permissions}
        options={{ everything: words.everything, choose: words.choose }}
        value={kind}
        onChange={setKind}
      />
      {kind === 'everything' ? null : (
        <TextField
          {...{ label: words.chosen, help: words.chosenHelp, problem: about(sent.error, 'permissions') }}
          {...{ value: permissions, onChange: setPermissions }}
        />
      )}
      <Choice label={words.expires} options={words.expiries} value={expiresIn} onChange={setExpiresIn} />
    </FormDialog>
  );
}

/** Replaces a key by a new one, and shows the new key once. */
export function ResetKey({ of: key, me, onClose }: DialogProps & { readonly of: ApiKey }): ReactNode {
  const [grace, setGrace] = useState<'0' | '3600' | '86400' | '604800'>('86400');
  const sent = useChange<CreatedKey>();
  const { result, isBusy } = sent;
  if (result !== null) return <ShownOnce created={result} onClose={onClose} />;
  const reset = (): void => {
    const body = { graceSeconds: Number(grace) };
    sent.send(
      async (reason) => (await call<CreatedKey>(`/keys/${key.keyId}/reset`, { method: 'POST', body, reason })).data,
    );
  };
  return (
    <Dialog title={texts.reset.title(nameOf(key))} {...{ isBusy, onClose }}>
      <Choice label={texts.reset.text} options={texts.reset.graces} value={grace} onChange={setGrace} />
      <LastUse keyId={key.keyId} />
      <ChangeProblem {...{ sent, me }} onRetry={reset} />
      <p className="buttons">
        <button type="button" disabled={isBusy} onClick={onClose}>
          {texts.cancel}
        </button>
        <button type="button" className="main" disabled={isBusy} onClick={reset}>
          {texts.reset.action}
        </button>
      </p>
    </Dialog>
  );
}

/** Asks whether to revoke a key, revokes it, and shows how many gateways have confirmed the revocation. */
export function RevokeKey({
  keyId,
  name,
  me,
  revoke,
  onClose,
}: {
  readonly keyId: string;
  readonly name: string;
  readonly me: Me;
  /** Sends the request that revokes the key. */
  readonly revoke: (reason: string | undefined) => Promise<Success<{ readonly propagation: Propagation }>>;
  readonly onClose: () => void;
}): ReactNode {
  const sent = useChange<Propagation>();
  const words = texts.revoke;
  if (sent.result !== null) {
    return (
      <Dialog title={words.done(name)} onClose={onClose}>
        <InForce propagation={sent.result} />
        <p className="buttons">
          <button type="button" className="main" ref={focusNow} onClick={onClose}>
            {texts.done}
          </button>
        </p>
      </Dialog>
    );
  }
  return (
    <FormDialog
      {...{ title: words.title(name), action: words.action, cancel: words.keep }}
      isDangerous
      {...{ me, sent, onClose }}
      onSend={() => sent.send(async (reason) => (await revoke(reason)).data.propagation)}
    >
      <p>{words.text(keyId)}</p>
      <LastUse keyId={keyId} />
    </FormDialog>
  );
}

/** Shows when and from which address a key was last used; nothing if no use is recorded. */
function LastUse({ keyId }: { readonly keyId: string }): ReactNode {
  const { data } = useQuery({
    queryKey: ['last-use', keyId],
    queryFn: async ({ signal }) =>
      (
        await call<{ readonly lastUse: { readonly at: string; readonly address: string } | null }>(
          `/keys/${keyId}/last-use`,
          { signal },
        )
      ).data,
  });
  if (!data?.lastUse) return null;
  return <p className="notice">{texts.revoke.used(inWords(data.lastUse.at), data.lastUse.address)}</p>;
}
