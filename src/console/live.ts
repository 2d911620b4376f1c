import { type QueryClient, useQueryClient } from '@tanstack/react-query';
import { useEffect } from 'react';

/** The lists that a change concerns, by the beginning of its kind. `merchant.changed` changes the list of merchants. */
const listsOf: readonly (readonly [kind: string, lists: readonly string[]])[] = [
  ['merchant', ['merchants']],
  ['approval', ['approvals', 'merchants']],
  ['key.unusual', ['unusual']],
  ['key', ['keys', 'refusals']],
  ['administrator', ['administrators', 'members', 'me']],
  ['token', ['tokens']],
  ['wallet', ['wallets']],
  ['sign-in', ['sessions', 'me']],
  ['console-link', []],
];

/**
 * Reads again what changes elsewhere, while the page is visible: a browser has six connections to a server, and each
 * visible page takes one.
 */
export function useChanges(): void {
  const client = useQueryClient();
  useEffect(() => {
    let source: EventSource | null = null;
    const follow = (): void => {
      if (document.hidden) {
        source?.close();
        source = null;
      } else source ??= open(client);
    };
    follow();
    document.addEventListener('visibilitychange', follow);
    return () => {
      document.removeEventListener('visibilitychange', follow);
      source?.close();
    };
  }, [client]);
}

function open(client: QueryClient): EventSource {
  const source = new EventSource('/console/api/stream');
  // Whatever changed before the stream was open, or while it was not.
  source.addEventListener('open', () => void client.invalidateQueries());
  source.addEventListener('ended', () => void client.invalidateQueries({ queryKey: ['me'] }));
  source.addEventListener('change', ({ data }: MessageEvent<string>) => {
    const { action } = JSON.parse(data) as { readonly action: string };
    const lists = listsOf.find(([kind]) => action.startsWith(kind))?.[1] ?? [];
    for (const list of [...lists, 'events']) void client.invalidateQueries({ queryKey: [list] });
  });
  return source;
}
