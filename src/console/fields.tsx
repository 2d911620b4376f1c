import { type ReactNode, useEffect, useId, useRef, useState } from 'react';
import { useSearchParams } from 'wouter';
import type { Meta } from './api';
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
      {problem === undefined ? (
        <p key="help" id={`${id}-help`} className="help">
          {help ?? ''}
        </p>
      ) : (
        // The key makes this a new element, which screen readers announce.
        <p key="problem" id={`${id}-help`} role="alert" className="problem">
          {problem}
        </p>
      )}
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
  disabled = false,
}: {
  readonly label: string;
  readonly options: Readonly<Record<Value, string>>;
  readonly value: Value;
  readonly onChange: (value: Value) => void;
  readonly help?: string | undefined;
  readonly disabled?: boolean;
}): ReactNode {
  const name = useId();
  return (
    <fieldset disabled={disabled}>
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

/** Returns the page number of a list. It is stored in the URL. */
export function usePage(): number {
  const [parameters] = useSearchParams();
  return Number(parameters.get('page') ?? 1);
}

/**
 * Buttons for the previous and next page of a list; nothing if there is only one page. If the list has become
 * shorter and lacks the page in the URL, goes to the last page. Otherwise the list would seem to be empty.
 */
export function Pager({ meta }: { readonly meta: Meta | null | undefined }): ReactNode {
  const [, setParameters] = useSearchParams();
  const page = usePage();
  const pages = Math.max(1, meta?.total_pages ?? 1);
  // While a page is being read, `meta` still belongs to the page shown before, perhaps with other filters.
  const isBeyond = meta?.current_page === page && page > pages;
  const go = (to: number, replace = false): void =>
    setParameters(
      (former) => {
        former.set('page', String(to));
        return former;
      },
      { replace },
    );
  useEffect(() => {
    if (isBeyond) go(pages, true);
    // `go` must not be a dependency: it is a new function at each render.
  }, [isBeyond, pages]);
  if (pages <= 1) return null;
  return (
    <p className="pager">
      <button type="button" disabled={page <= 1} onClick={() => go(page - 1)}>
        {texts.previous}
      </button>
      <span aria-live="polite">{texts.pages(page, pages)}</span>
      <button type="button" disabled={page >= pages} onClick={() => go(page + 1)}>
        {texts.next}
      </button>
    </p>
  );
}

/** Returns the page number and the filters of a list. They are stored in the URL. */
export function useFilters<Name extends string>(names: readonly Name[]) {
  const page = usePage();
  const [parameters, setParameters] = useSearchParams();
  const given = Object.fromEntries(names.map((name) => [name, parameters.get(name) ?? ''])) as Record<Name, string>;
  const active = names.filter((name) => given[name] !== '');
  return {
    page,
    /** The value of each filter; empty if the filter is not set. */
    given,
    /** The filters that are set, for the query of a request. */
    query: Object.fromEntries(active.map((name) => [name, given[name]] as const)),
    isFiltered: active.length > 0,
    /** Sets a filter and goes to the first page of the list. An empty value removes the filter. */
    set: (name: Name, value: string): void =>
      setParameters((former) => {
        if (value === '') former.delete(name);
        else former.set(name, value);
        former.delete('page');
        return former;
      }),
    clear: (): void => setParameters({}),
  };
}
