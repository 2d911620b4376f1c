import { useQuery } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { type ApiKey, call, type Me, type Merchant, type Refused } from '../api';
import { CommandLine, Problem, Text, Time } from '../elements';
import { texts } from '../texts';
import { nameOf } from './key-dialogs';

const everyMilliseconds = 1_000;
/** Tolerated difference between the clocks of a gateway and of this browser. */
const skewMilliseconds = 5_000;

/**
 * Shows how to send a first request, and whether a gateway accepted or refused it. The person never enters a key on
 * this page.
 */
export function TryItPage({ merchant, me }: { readonly merchant: Merchant; readonly me: Me }): ReactNode {
  const [since] = useState(() => Date.now() - skewMilliseconds);
  const keys = useQuery({
    queryKey: ['keys', merchant.id, 'newest'],
    queryFn: async ({ signal }) =>
      (await call<readonly ApiKey[]>(`/merchants/${merchant.id}/keys`, { query: { per_page: 100 }, signal })).data,
    refetchInterval: everyMilliseconds,
  });
  const refusals = useQuery({
    queryKey: ['refusals', merchant.id, 'newest'],
    queryFn: async ({ signal }) =>
      (await call<readonly Refused[]>(`/merchants/${merchant.id}/refusals`, { query: { per_page: 1 }, signal })).data,
    refetchInterval: everyMilliseconds,
  });
  const words = texts.tryIt;
  const { testUrl = null, liveUrl = null, caFile = null } = me.merchantApi ?? {};
  const addresses = [
    ...(testUrl === null && liveUrl !== null ? [] : [{ title: words.test, url: testUrl ?? words.unknownUrl }]),
    ...(liveUrl === null || !merchant.goLive ? [] : [{ title: words.live, url: liveUrl }]),
  ];
  return (
    <>
      <h1>{words.title}</h1>
      <p>{words.text}</p>
      {testUrl === null && liveUrl === null ? <p className="notice">{words.askForUrl}</p> : null}
      <h2>{words.first}</h2>
      <CommandLine>{'read -rs SVC_API_KEY && export SVC_API_KEY'}</CommandLine>
      <p className="help">{words.firstHelp}</p>
      {(addresses.length === 0 ? [{ title: words.live, url: liveUrl ?? words.unknownUrl }] : addresses).map(
        ({ title, url }) => (
          <section key={title}>
            <h2>{title}</h2>
            <CommandLine>{requestLine(url, caFile)}</CommandLine>
          </section>
        ),
      )}
      <h2>{words.result}</h2>
      <Problem error={keys.error ?? refusals.error} roles={me.roles.join(', ')} />
      <div role="status">
        <Received accepted={newestUse(keys.data ?? [], since)} refused={newestOf(refusals.data ?? [], since)} />
      </div>
    </>
  );
}

function requestLine(url: string, caFile: string | null): string {
  // printf is built into the shell, so the list of processes does not show the key.
  const ca = caFile === null ? '' : ` --cacert '${caFile}'`;
  return `printf 'x-api-key: %s' "$SVC_API_KEY" | curl${ca} -H @- '${url}/payouts'`;
}

function newestUse(keys: readonly ApiKey[], since: number): ApiKey | undefined {
  return keys
    .filter(({ lastUse }) => lastUse && Date.parse(lastUse.at) >= since)
    .toSorted((a, b) => Date.parse(b.lastUse?.at ?? '') - Date.parse(a.lastUse?.at ?? ''))[0];
}

function newestOf(refusals: readonly Refused[], since: number): Refused | undefined {
  return refusals.find(({ at }) => Date.parse(at) >= since);
}

function Received({
  accepted,
  refused,
}: {
  readonly accepted: ApiKey | undefined;
  readonly refused: Refused | undefined;
}): ReactNode {
  const words = texts.tryIt;
  const use = accepted?.lastUse;
  if (refused !== undefined && (!use || Date.parse(refused.at) > Date.parse(use.at))) {
    const { status, code, message, remedy, at } = refused;
    return (
      <div className="notice">
        <p className="problem">
          {words.refused(status, message ?? code)} <Time at={at} />
        </p>
        <p>{remedy ?? ''}</p>
      </div>
    );
  }
  if (accepted === undefined || !use) return <p className="empty">{words.waiting}</p>;
  return (
    <p className="notice good">
      <Text>{words.accepted(use.address, nameOf(accepted))}</Text> <Time at={use.at} />
    </p>
  );
}
