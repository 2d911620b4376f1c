import { type QueryClient, useQueryClient } from '@tanstack/react-query';
import { useEffect } from 'react';

/**
 * The lists (as query keys) that the page reads again after an event. The first entry whose kind is a prefix of the
 * event's action applies. For example, `merchant.changed` reloads the list of merchants.
 */
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
 * Reloads lists when the server reports a change. Only a visible page holds the event stream open, because a browser
 * allows only six connections to a server.
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
  // Reload everything, because the page missed the changes before the stream was open.
  source.addEventListener('open', () => void client.invalidateQueries());
  source.addEventListener('ended', () => void client.invalidateQueries({ queryKey: ['me'] }));
  source.addEventListener('change', ({ data }: MessageEvent<string>) => {
    const { action } = JSON.parse(data) as { readonly action: string };
    const lists = listsOf.find(([kind]) => action.startsWith(kind))?.[1] ?? [];
    for (const list of [...lists, 'events']) void client.invalidateQueries({ queryKey: [list] });
  });
  return source;
}
