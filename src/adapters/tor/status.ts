import type { TorListStatus, TorSourceStatus } from '../../gateway/ports.js';
import { ageStart } from './exit-source.js';
import type { SourceState } from './source-lists.js';
import type { TorExitList } from './tor-exit-list.js';

/** The data from which a status is computed. */
interface StatusFacts {
  readonly available: boolean;
  readonly list: TorExitList;
  /** The current time, in milliseconds since 1970. */
  readonly now: number;
  readonly sources: readonly SourceFacts[];
}

interface SourceFacts {
  readonly name: string;
  readonly state: SourceState;
  readonly refusals: Readonly<Record<string, number>>;
}

/** Returns the status of the Tor exit list, for operators. */
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
    ageSeconds: list === null ? null : Math.max(0, Math.round((now - ageStart(list)) / 1000)),
    size: list?.addresses.length ?? 0,
    leftOut: list?.leftOut ?? 0,
    problem,
    refusals,
  };
}
