import { type ReactNode, useState } from 'react';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { call } from '../api';
import { CommandLine, Problem } from '../elements';
import { texts } from '../texts';

interface ChainState {
  readonly head: { readonly position: number; readonly hash: string };
  readonly pruned: { readonly position: number; readonly hash: string };
  readonly unchained: { readonly count: number; readonly firstSeq: number | null };
}

interface ChainPage {
  readonly events: readonly {
    readonly position: number;
    readonly content: string | null;
    readonly hash: string;
  }[];
  readonly next: number | null;
}

const number = new Intl.NumberFormat();
const chainStart = '0'.repeat(64);

/** The result of a verification: the number of verified events, or the position at which the chain breaks. */
type Verdict = { readonly events: number } | { readonly brokenAt: number };

// To return the state of the chain, the registry must read all events. So this query key does not begin with `events`:
// the page reloads queries with that key after each event.
const queryKey = ['chain'];

/**
 * Shows the state of the hash chain of events, and verifies the chain on request. This browser computes the hashes
 * itself. Only the command `events verify` also checks signatures.
 */
export function Chain(): ReactNode {
  const client = useQueryClient();
  const { data, error } = useQuery({
    queryKey,
    queryFn: async ({ signal }) => (await call<ChainState>('/events/chain', { signal })).data,
  });
  const [done, setDone] = useState<number | null>(null);
  const [verdict, setVerdict] = useState<Verdict | null>(null);
  const [problem, setProblem] = useState<unknown>(null);
  const words = texts.events.chain;
  const verify = async (): Promise<void> => {
    setVerdict(null);
    setProblem(null);
    setDone(0);
    try {
      const state = (await call<ChainState>('/events/chain')).data;
      client.setQueryData(queryKey, state);
      setVerdict(await verifyChain(state, setDone));
    } catch (failure) {
      setProblem(failure);
    }
    setDone(null);
  };
  if (data === undefined) return <Problem error={error} />;
  const { head, pruned, unchained } = data;
  const hasAll = unchained.count === 0;
  return (
    <section className="notice">
      <p role="status">
        {hasAll ? null : (
          <>
            <strong className="problem">{words.added(unchained.count, unchained.firstSeq)}</strong>{' '}
          </>
        )}
        {verdict === null ? (
          done === null ? (
            hasAll && words.state(number.format(head.position - pruned.position))
          ) : (
            words.progress(number.format(done), number.format(head.position - pruned.position))
          )
        ) : 'events' in verdict ? (
          <span className="good">{words.complete(number.format(verdict.events))}</span>
        ) : (
          <strong className="problem">{words.broken(verdict.brokenAt)}</strong>
        )}
      </p>
      <Problem error={problem} />
      <p className="buttons">
        <button type="button" disabled={done !== null} onClick={() => void verify()}>
          {words.verify}
        </button>
      </p>
      <details>
        <summary>{words.signatures}</summary>
        <CommandLine>{words.command}</CommandLine>
      </details>
    </section>
  );
}

async function verifyChain({ head, ...first }: ChainState, onProgress: (events: number) => void): Promise<Verdict> {
  let { pruned } = first;
  let { position } = pruned;
  let hash = pruned.position === 0 ? chainStart : pruned.hash;
  let after: number | null = position;
  while (after !== null) {
    const query: { after: number } = { after };
    const page: ChainPage = (await call<ChainPage>('/events/chain/rows', { query })).data;
    if (hasGap(page, after, head.position)) {
      // Since the last page was read, the registry may have deleted the missing events after their retention period.
      const present: ChainState = (await call<ChainState>('/events/chain')).data;
      if (present.pruned.position > after) {
        ({ pruned } = present);
        ({ position, hash } = pruned);
        after = position;
        continue;
      }
    }
    for (const event of page.events) {
      const isNext = event.position === position + 1;
      if (!isNext || event.content === null || (await hashOf(hash, event.content)) !== event.hash)
        return { brokenAt: isNext ? event.position : position + 1 };
      ({ position, hash } = event);
    }
    onProgress(position - pruned.position);
    after = page.next;
  }
  // Events may have been added after the head (newest event) was read. So a chain that ends later than the head is
  // valid.
  return position < head.position || (position === head.position && hash !== head.hash)
    ? { brokenAt: position + 1 }
    : { events: position - pruned.position };
}

/** Whether a page lacks events after the position `after`. An empty page lacks events if `after` is below `head`. */
function hasGap({ events }: ChainPage, after: number, head: number): boolean {
  return events.length === 0 ? after < head : events.some(({ position }, index) => position !== after + 1 + index);
}

async function hashOf(previous: string, content: string): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(`${previous}\n${content}`));
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}
