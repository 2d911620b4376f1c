import { useQuery } from '@tanstack/react-query';
import { type ReactNode, useEffect, useState } from 'react';
import { Link } from 'wouter';
import { call } from './api';
import { Dialog, Problem, Text } from './elements';
import { Field, isSecret } from './fields';
import { texts } from './texts';

interface Found {
  readonly kind: keyof typeof texts.search.kinds;
  readonly id: string;
  readonly name: string | null;
  readonly merchantId: string | null;
}

const pauseMilliseconds = 250;

/** A button that opens the search. Ctrl+K (or Cmd+K) opens it too. */
export function Search(): ReactNode {
  const [isOpen, setIsOpen] = useState(false);
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== 'k') return;
      event.preventDefault();
      // Do not open the search over another dialog: following a result would discard the input in that dialog.
      if (document.querySelector('dialog[open]') === null) setIsOpen(true);
    };
    document.addEventListener('keydown', onKey);
    return () => document.removeEventListener('keydown', onKey);
  }, []);
  return (
    <>
      <button type="button" aria-keyshortcuts="Control+K" onClick={() => setIsOpen(true)}>
        {texts.search.open}
      </button>
      {isOpen ? <SearchDialog onClose={() => setIsOpen(false)} /> : null}
    </>
  );
}

function SearchDialog({ onClose }: { readonly onClose: () => void }): ReactNode {
  const [text, setText] = useState('');
  const [asked, setAsked] = useState('');
  const isRefused = isSecret(text);
  useEffect(() => {
    if (isRefused) return;
    const timer = setTimeout(() => setAsked(text.trim()), pauseMilliseconds);
    return () => clearTimeout(timer);
  }, [text, isRefused]);
  const { data, error } = useQuery({
    queryKey: ['search', asked],
    enabled: asked !== '' && !isRefused,
    queryFn: async ({ signal }) => (await call<readonly Found[]>('/search', { query: { q: asked }, signal })).data,
  });
  const isCurrent = asked !== '' && !isRefused && asked === text.trim();
  return (
    <Dialog title={texts.search.title} onClose={onClose}>
      <Field label={texts.search.label} help={texts.search.help} problem={isRefused ? texts.search.secret : undefined}>
        {(ids) => (
          <input
            {...ids}
            type="search"
            value={text}
            maxLength={100}
            autoFocus
            autoComplete="off"
            spellCheck={false}
            onInput={({ currentTarget }) => setText(currentTarget.value)}
          />
        )}
      </Field>
      {isCurrent ? <Problem error={error} /> : null}
      <div role="status">
        {!isCurrent || data === undefined ? null : data.length === 0 ? (
          <p className="empty">{texts.search.noResult}</p>
        ) : (
          <ul className="found">
            {data.map((one, index) => (
              <li key={index}>
                <Link href={pageOf(one)} onClick={onClose}>
                  {texts.search.kinds[one.kind]} <Text>{one.name ?? one.id}</Text>
                </Link>{' '}
                <small>{one.name === null ? (one.merchantId ?? '') : one.id}</small>
              </li>
            ))}
          </ul>
        )}
      </div>
      <p className="buttons">
        <button type="button" onClick={onClose}>
          {texts.close}
        </button>
      </p>
    </Dialog>
  );
}

function pageOf({ kind, id, merchantId }: Found): string {
  const of = `/merchants/${merchantId ?? ''}`;
  switch (kind) {
    case 'merchant':
      return `/merchants/${id}/keys`;
    case 'key':
      return `${of}/activity?key=${id}`;
    case 'refusal':
      return `${of}/activity?requestId=${encodeURIComponent(id)}`;
    case 'address':
      return `${of}/activity?address=${encodeURIComponent(id)}`;
    case 'event':
      return `/events?requestId=${encodeURIComponent(id)}`;
    case 'administrator':
      return merchantId === null ? `/administrators/${id}/tokens` : `${of}/members`;
  }
}
