import { type ReactNode, useEffect, useId, useRef, useState } from 'react';
import { useSearchParams } from 'wouter';
import { texts } from './texts';

/** A labelled field with its help text and its error message. */
export function Field({
  label,
  help,
  problem,
  children,
}: {
  readonly label: string;
  readonly help?: string | undefined;
  readonly problem?: string | undefined;
  readonly children: (ids: {
    readonly id: string;
    readonly 'aria-describedby': string;
    readonly 'aria-invalid': boolean;
  }) => ReactNode;
}): ReactNode {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {children({ id, 'aria-describedby': `${id}-help`, 'aria-invalid': problem !== undefined })}
      <p id={`${id}-help`} className={problem === undefined ? 'help' : 'problem'}>
        {problem ?? help ?? ''}
      </p>
    </div>
  );
}

/** Radio buttons for one choice. */
export function Choice<Value extends string>({
  label,
  options,
  value,
  onChange,
  help,
}: {
  readonly label: string;
  readonly options: Readonly<Record<Value, string>>;
  readonly value: Value;
  readonly onChange: (value: Value) => void;
  readonly help?: string | undefined;
}): ReactNode {
  const name = useId();
  return (
    <fieldset>
      <legend>{label}</legend>
      {(Object.entries(options) as [Value, string][]).map(([one, text]) => (
        <label key={one} className="choice">
          <input type="radio" name={name} checked={one === value} onChange={() => onChange(one)} /> {text}
        </label>
      ))}
      {help === undefined ? null : <p className="help">{help}</p>}
    </fieldset>
  );
}

/** A labelled field for one line of text. */
export function TextField({
  onChange,
  ...input
}: {
  readonly label: string;
  readonly help?: string | undefined;
  readonly problem?: string | undefined;
  readonly value: string;
  readonly onChange: (value: string) => void;
  readonly maxLength?: number;
  readonly required?: boolean;
  readonly autoFocus?: boolean;
  readonly readOnly?: boolean;
}): ReactNode {
  const { label, help, problem, ...attributes } = input;
  return (
    <Field {...{ label, help, problem }}>
      {(ids) => (
        <input
          {...ids}
          {...attributes}
          autoComplete="off"
          onInput={({ currentTarget }) => onChange(currentTarget.value)}
        />
      )}
    </Field>
  );
}

/** Matches the prefix of an API key or of an administrator's token. */
const secretForm = /(?:svc_(?:live|test)|mga)_/i;

/** Whether a text has the form of a secret. The page never sends such a text to the API or puts it into a URL. */
export function isSecret(text: string): boolean {
  return secretForm.test(text);
}

const pauseMilliseconds = 300;

/**
 * A labelled field that filters a list once the person pauses typing. It never applies a text that looks like a secret.
 */
export function TextFilter({
  label,
  value,
  onChange,
}: {
  readonly label: string;
  readonly value: string;
  readonly onChange: (value: string) => void;
}): ReactNode {
  const [text, setText] = useState(value);
  const applied = useRef(value);
  const id = useId();
  useEffect(() => {
    // Show a filter value that was changed outside this field, for example cleared.
    if (value !== applied.current) setText(value);
    applied.current = value;
  }, [value]);
  useEffect(() => {
    if (text.trim() === applied.current || isSecret(text)) return;
    const timer = setTimeout(() => {
      applied.current = text.trim();
      onChange(applied.current);
    }, pauseMilliseconds);
    return () => clearTimeout(timer);
    // `onChange` must not be a dependency: it is a new function at each render, which would restart the pause each
    // time.
  }, [text]);
  return (
    <span>
      <label htmlFor={id}>{label}</label>{' '}
      <input
        id={id}
        type="search"
        value={text}
        maxLength={100}
        spellCheck={false}
        autoComplete="off"
        onInput={({ currentTarget }) => setText(currentTarget.value)}
      />
      {isSecret(text) ? (
        <span role="alert" className="problem">
          {' '}
          {texts.search.secret}
        </span>
      ) : null}
    </span>
  );
}

/** Returns the page number and the filters of a list. They are stored in the URL. */
export function useFilters<Name extends string>(names: readonly Name[]) {
  const [parameters, setParameters] = useSearchParams();
  const given = Object.fromEntries(names.map((name) => [name, parameters.get(name) ?? ''])) as Record<Name, string>;
  return {
    page: Number(parameters.get('page') ?? 1),
    /** The value of each filter; empty if the filter is not set. */
    given,
    isFiltered: names.some((name) => given[name] !== ''),
    /** Sets a filter and returns to the first page, or sets the page. An empty value removes the filter. */
    set: (name: Name | 'page', value: string): void =>
      setParameters((former) => {
        if (value === '') former.delete(name);
        else former.set(name, value);
        if (name !== 'page') former.delete('page');
        return former;
      }),
    clear: (): void => setParameters({}),
  };
}
