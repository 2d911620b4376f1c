import { type QueryClient, useQueryClient } from '@tanstack/react-query';
import { useEffect } from 'react';

/**
 * The query keys of the lists that the page reads again after an event. Only the first entry whose `kind` is a prefix
 * of the event's action applies. For example, `merchant.changed` reloads the list of merchants.
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

const longestPauseMilliseconds = 5 * 60_000;

/**
 * Reloads lists when the server reports a change. Only a visible page holds the event stream open, because a browser
 * allows only six connections to a server. `isAllowed`: whether the person may read events, as the stream requires.
 */
export function useChanges(isAllowed: boolean): void {
  const client = useQueryClient();
  useEffect(() => {
    if (!isAllowed) return;
    const reload = reloader(client);
    let refusals = 0;
    let source: EventSource | null = null;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const follow = (): void => {
      clearTimeout(timer);
      if (document.hidden) {
        source?.close();
        source = null;
      } else source ??= open(client, reload, () => (refusals = 0), followLater);
    };
    const followLater = (): void => {
      source = null;
      // The pause is random, so that not all pages reconnect at once after an outage. It doubles with each failed
      // request, because the registry may store a refused request as an event.
      const pause = (5_000 + Math.random() * 25_000) * 2 ** refusals;
      refusals += 1;
      timer = setTimeout(follow, Math.min(pause, longestPauseMilliseconds));
    };
    follow();
    document.addEventListener('visibilitychange', follow);
    return () => {
      document.removeEventListener('visibilitychange', follow);
      clearTimeout(timer);
      source?.close();
    };
  }, [client, isAllowed]);
}

/**
 * Returns a function that reads a list again. While the list is being read, further calls cause only one more read,
 * which begins after the current read. If each change restarted the read, no read would finish while changes are
 * frequent, and the registry would still run each abandoned query.
 */
function reloader(client: QueryClient): (list: string) => void {
  /** The lists that are being read, and whether each has to be read again after that. */
  const isOutdated = new Map<string, boolean>();
  const reload = async (list: string): Promise<void> => {
    if (isOutdated.has(list)) {
      isOutdated.set(list, true);
      return;
    }
    do {
      // A read that is already running may lack the change, so the list has to be read again after that read.
      isOutdated.set(list, client.isFetching({ queryKey: [list] }) > 0);
      await client.invalidateQueries({ queryKey: [list] }, { cancelRefetch: false });
    } while (isOutdated.get(list) === true);
    isOutdated.delete(list);
  };
  return (list) => void reload(list);
}

function open(
  client: QueryClient,
  reload: (list: string) => void,
  onOpen: () => void,
  onClosed: () => void,
): EventSource {
  const source = new EventSource('/console/api/stream');
  // Reload everything, because the page missed the changes before the stream was open.
  source.addEventListener('open', () => {
    onOpen();
    void client.invalidateQueries();
  });
  // A browser reconnects after a lost connection, but not after a failure response, such as 503 during an outage.
  source.addEventListener('error', () => {
    if (source.readyState === EventSource.CLOSED) onClosed();
  });
  source.addEventListener('ended', () => void client.invalidateQueries({ queryKey: ['me'] }));
  source.addEventListener('change', ({ data }: MessageEvent<string>) => {
    const { action } = JSON.parse(data) as { readonly action: string };
    const lists = listsOf.find(([kind]) => action.startsWith(kind))?.[1] ?? [];
    for (const list of [...lists, 'events']) reload(list);
  });
  return source;
}
