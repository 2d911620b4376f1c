import { useQueryClient } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { useSearchParams } from 'wouter';
import { ApiProblem, call, type Me, type Merchant, type Propagation } from '../api';
import { Problem } from '../elements';
import { Field } from '../fields';
import { may } from '../frame';
import { AddAddresses, AllowlistVerdict } from './allowlist-verdict';
import { InForce } from './shown-once';
import { texts } from '../texts';

type ListName = 'ipAllowlist' | 'originAllowlist';
type Saved = Merchant & { readonly propagation: Propagation };

/** Shows and changes the addresses and origins from which a merchant's keys can be used. */
export function AllowlistsPage({ merchant, me }: { readonly merchant: Merchant; readonly me: Me }): ReactNode {
  const [parameters] = useSearchParams();
  const added = parameters.get('add');
  const words = texts.allowlists;
  return (
    <>
      <h1>{words.title}</h1>
      <Allowlist
        {...{ merchant, me, name: 'ipAllowlist', added }}
        words={{ title: words.addresses, help: words.addressesHelp, off: words.off, empty: words.empty }}
      />
      <Allowlist
        {...{ merchant, me, name: 'originAllowlist', added: null }}
        words={{ title: words.origins, help: words.originsHelp, off: words.offOrigins, empty: words.emptyOrigins }}
      />
    </>
  );
}

function Allowlist({
  merchant,
  me,
  name,
  added,
  words,
}: {
  readonly merchant: Merchant;
  readonly me: Me;
  readonly name: ListName;
  readonly added: string | null;
  readonly words: { readonly title: string; readonly help: string; readonly off: string; readonly empty: string };
}): ReactNode {
  const client = useQueryClient();
  const stored = merchant[name];
  const [isOn, setIsOn] = useState(stored !== null || added !== null);
  const [text, setText] = useState([...(stored ?? []), ...(added === null ? [] : [added])].join('\n'));
  const [confirmed, setConfirmed] = useState<readonly string[]>([]);
  // The revision (number of the latest change) of the merchant that the person saw. The API rejects the change if the
  // merchant has a newer one.
  const [base, setBase] = useState(merchant.revision);
  const [state, setState] = useState<{
    readonly saved: Saved | null;
    readonly error: unknown;
    readonly isBusy: boolean;
  }>({
    ...{ saved: null, error: null, isBusy: false },
  });
  const mayWrite = may(me, 'allowlists:write');
  const entries = text.split(/[\s,]+/).filter((entry) => entry !== '');
  const save = async (): Promise<void> => {
    setState({ saved: null, error: null, isBusy: true });
    const body = {
      [name]: isOn ? entries : null,
      revision: base,
      ...(confirmed.length === 0 ? {} : { confirm: confirmed }),
    };
    try {
      const { data } = await call<Saved>(`/merchants/${merchant.id}`, { method: 'PATCH', body });
      setBase(data.revision);
      setText((data[name] ?? []).join('\n'));
      setConfirmed([]);
      setState({ saved: data, error: null, isBusy: false });
      await client.invalidateQueries({ queryKey: ['merchants', merchant.id] });
    } catch (error) {
      setState({ saved: null, error, isBusy: false });
    }
  };
  const { saved, error, isBusy } = state;
  const problems = error instanceof ApiProblem ? error.errors : [];
  const isConflict = error instanceof ApiProblem && error.status === 409;
  const unconfirmed = problems.flatMap(({ message }) => concernIn(message));
  const showTheirs = (): void => {
    setBase(merchant.revision);
    setIsOn(stored !== null);
    setText((stored ?? []).join('\n'));
    setState({ saved: null, error: null, isBusy: false });
  };
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      <h2>{words.title}</h2>
      <label className="choice">
        <input
          type="checkbox"
          checked={isOn}
          disabled={!mayWrite}
          onChange={({ currentTarget }) => setIsOn(currentTarget.checked)}
        />{' '}
        {texts.allowlists.restrict}
      </label>
      {isOn ? (
        <Field
          label={words.title}
          help={entries.length === 0 ? words.empty : words.help}
          problem={
            problems.length === unconfirmed.length ? undefined : problems.map(({ message }) => message).join(' ')
          }
        >
          {(ids) => (
            <textarea
              {...ids}
              rows={Math.min(12, Math.max(3, entries.length + 1))}
              value={text}
              readOnly={!mayWrite}
              spellCheck={false}
              onInput={({ currentTarget }) => setText(currentTarget.value)}
            />
          )}
        </Field>
      ) : (
        <p className="help">{words.off}</p>
      )}
      {isOn && name === 'ipAllowlist' ? (
        <>
          {mayWrite ? (
            <AddAddresses
              {...{ merchant, entries, own: me.address ?? null }}
              onAdd={(more) => setText([...entries, ...more].join('\n'))}
            />
          ) : null}
          <AllowlistVerdict merchant={merchant} entries={entries} />
        </>
      ) : null}
      {unconfirmed.map(({ flag, what }) => (
        <label key={what} className="choice">
          <input
            type="checkbox"
            checked={confirmed.includes(flag)}
            onChange={({ currentTarget }) => {
              const others = confirmed.filter((one) => one !== flag);
              setConfirmed(currentTarget.checked ? [...others, flag] : others);
            }}
          />{' '}
          {texts.allowlists.confirm} {what}
        </label>
      ))}
      {isConflict ? (
        <p role="alert" className="problem">
          {texts.allowlists.conflict}{' '}
          <button type="button" onClick={showTheirs}>
            {texts.allowlists.showTheirs}
          </button>
        </p>
      ) : unconfirmed.length > 0 ? null : (
        <Problem error={error} roles={me.roles.join(', ')} />
      )}
      {mayWrite ? (
        <p className="buttons">
          <button type="submit" className="main" disabled={isBusy}>
            {texts.save}
          </button>
        </p>
      ) : null}
      {saved === null ? null : (
        <>
          <p role="status">{texts.allowlists.saved}</p>
          <InForce propagation={saved.propagation} />
        </>
      )}
    </form>
  );
}

/**
 * Parses a message in which the API asks for a confirmation. `what` is the concern to confirm, such as an empty list;
 * `flag` is the word to send in `confirm`. Returns an empty array for any other message.
 */
function concernIn(message: string): { readonly flag: string; readonly what: string }[] {
  const [, what = '', flag = ''] = /^\w+(?:\[\d+\])?: (.*); send "confirm": \["(\w+)"\]/.exec(message) ?? [];
  return flag === '' ? [] : [{ flag, what }];
}
