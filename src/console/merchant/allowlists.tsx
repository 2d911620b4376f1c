import { useQueryClient } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { useSearchParams } from 'wouter';
import { ApiProblem, call, type Me, type Merchant, type Propagation } from '../api';
import { ChangeProblem, useChange } from '../change';
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
  // The merchant with the list that the person saw. The API rejects the change if the merchant has a newer revision
  // (number of its latest change).
  const [base, setBase] = useState(merchant);
  const sent = useChange<Saved>();
  const mayWrite = may(me, 'allowlists:write');
  const entries = entriesIn(text);
  const [path, queryKey] = [`/merchants/${merchant.id}`, ['merchants', merchant.id]];
  /**
   * Sends the new list. The API rejects it if the merchant has a newer revision, for example after a change of another
   * field. But if the stored list is still the one that the person saw, or already equals the new list because a
   * response was lost, sends the new list again with the newer revision.
   */
  const send = async (revision: number, reason: string | undefined): Promise<Saved> => {
    const body = {
      [name]: isOn ? entries : null,
      revision,
      ...(confirmed.length === 0 ? {} : { confirm: confirmed }),
    };
    try {
      return (await call<Saved>(path, { method: 'PATCH', body, reason })).data;
    } catch (error) {
      if (!isConflict(error)) throw error;
      const { data: current } = await call<Merchant>(path);
      client.setQueryData(queryKey, current);
      const known = [base[name], isOn ? entries : null].map((list) => JSON.stringify(list));
      if (current.revision === revision || !known.includes(JSON.stringify(current[name]))) throw error;
      return send(current.revision, reason);
    }
  };
  const save = (): void => {
    sent.send(
      async (reason) => {
        const data = await send(base.revision, reason);
        void client.invalidateQueries({ queryKey });
        return data;
      },
      (data) => {
        setBase(data);
        // Keep what the person has typed since the change was sent.
        setText((latest) => (latest === text ? (data[name] ?? []).join('\n') : latest));
        setConfirmed([]);
      },
    );
  };
  const { result: saved, error, isBusy } = sent;
  const problems = error instanceof ApiProblem ? error.errors : [];
  const unconfirmed = problems.flatMap(({ message }) => concernIn(message));
  // The page shows these errors in its own words. The field for the reason stays.
  const isExplained = isConflict(error) || unconfirmed.length > 0;
  const showTheirs = (): void => {
    setBase(merchant);
    setIsOn(stored !== null);
    setText((stored ?? []).join('\n'));
    setConfirmed([]);
    sent.reset();
  };
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        save();
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
              onAdd={(more) => setText((latest) => [...new Set([...entriesIn(latest), ...more])].join('\n'))}
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
      {isConflict(error) ? (
        <p role="alert" className="problem">
          {texts.allowlists.conflict}{' '}
          <button type="button" onClick={showTheirs}>
            {texts.allowlists.showTheirs}
          </button>
        </p>
      ) : null}
      <ChangeProblem sent={isExplained ? { ...sent, error: null } : sent} me={me} onRetry={save} />
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

function entriesIn(text: string): string[] {
  return text.split(/[\s,]+/).filter((entry) => entry !== '');
}

function isConflict(error: unknown): boolean {
  return error instanceof ApiProblem && error.status === 409;
}

/**
 * Parses a message in which the API asks to confirm a change. `what` says what must be confirmed, for example that the
 * allowlist becomes empty. `flag` is the word to send in `confirm`. Returns an empty array for any other message.
 */
function concernIn(message: string): { readonly flag: string; readonly what: string }[] {
  const [, what = '', flag = ''] = /^\w+(?:\[\d+\])?: (.*); send "confirm": \["(\w+)"\]/.exec(message) ?? [];
  return flag === '' ? [] : [{ flag, what }];
}
