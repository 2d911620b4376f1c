import type { TorListStatus, TorSourceStatus } from '../../gateway/ports.js';
import { agesSince } from './list-date.js';
import type { SourceState } from './source-lists.js';
import type { TorExitList } from './tor-exit-list.js';

/** What a status is made of. */
export interface StatusFacts {
  readonly available: boolean;
  readonly list: TorExitList;
  /** In milliseconds since 1970. */
  readonly now: number;
  readonly sources: readonly SourceFacts[];
}

interface SourceFacts {
  readonly name: string;
  readonly state: SourceState;
  readonly refusals: Readonly<Record<string, number>>;
}

/** What operators are shown of a list. */
export function statusOf({ available, list, now, sources }: StatusFacts): TorListStatus {
  const shown = sources.map((source) => sourceStatus(source, now));
  const ages = shown.map(({ ageSeconds }) => ageSeconds).filter((age) => age !== null);
  return {
    available,
    digest: available ? list.digest : null,
    size: available ? list.size : 0,
    ageSeconds: ages.length === 0 ? null : Math.min(...ages),
    sources: shown,
  };
}

function sourceStatus({ name, state: { list, problem }, refusals }: SourceFacts, now: number): TorSourceStatus {
  return {
    source: name,
    confirmedAt: list?.confirmedAt ?? null,
    datedAt: list?.datedAt ?? null,
    datedBy: list?.datedBy ?? null,
    ageSeconds: list === null ? null : Math.max(0, Math.round((now - agesSince(list)) / 1000)),
    size: list?.addresses.length ?? 0,
    leftOut: list?.leftOut ?? 0,
    problem,
    refusals,
  };
}
