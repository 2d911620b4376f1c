import type { InputSeries } from './promtool.js';

/** What a process tells on /metrics at a moment. */
export interface Scrape {
  readonly text: string;
  /** In seconds since 1970. */
  readonly time: number;
}

/** A process under watch: how Prometheus names it, and what it told. */
export interface Watched {
  /** The end of the name of its Service in the chart, such as `live-management`. */
  readonly service: string;
  readonly instance: string;
  /** Twice, with ordinary traffic in between: each further minute of the quiet hour is like that one. Null: it was not there. */
  readonly quiet: readonly [Scrape, Scrape] | null;
  /** Before and after the cause: each further minute is like that one. Null: it tells nothing any more, or told nothing before. */
  readonly caused?: readonly [Scrape | null, Scrape | null];
}

/** When the cause begins, in minutes: the hour before was quiet. */
export const causeMinute = 70;
/** How long it lasts. */
export const causedMinutes = 20;

interface Sample {
  readonly name: string;
  readonly labels: string;
  readonly isCounter: boolean;
  readonly value: number;
}

/** The samples of a text, by their series. */
function samplesIn(text: string, metrics: ReadonlySet<string> | null): Map<string, Sample> {
  const samples = new Map<string, Sample>();
  let type = '';
  for (const line of text.split('\n')) {
    const [, kind] = /^# TYPE \S+ (\w+)$/.exec(line) ?? [];
    if (kind !== undefined) type = kind;
    const [, name = '', labels = '', value = ''] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
    if (name === '' || metrics?.has(name) === false) continue;
    const isCounter = type !== 'gauge' || name === 'registry_redis_evicted_keys'; // which is Redis' own counter
    samples.set(`${name}{${labels}}`, { name, labels, isCounter, value: numberOf(value) });
  }
  return samples;
}

function numberOf(text: string): number {
  if (text === 'Nan' || text === 'NaN') return NaN;
  return Number(text.replace('+Inf', 'Infinity').replace('-Inf', '-Infinity'));
}

/**
 * The series of processes: a quiet hour, and then what a cause does to them.
 * @param metrics those that are of interest; null: all
 */
export function timeline(processes: readonly Watched[], metrics: ReadonlySet<string> | null): InputSeries[] {
  return processes.flatMap((one) => seriesOf(one, metrics));
}

function seriesOf({ service, instance, quiet, caused }: Watched, metrics: ReadonlySet<string> | null): InputSeries[] {
  const name = `release-merchant-gateway-${service}`;
  const target = `namespace="payments",job="${name}",service="${name}",instance="${instance}"`;
  const read = (scrape: Scrape | null | undefined) => samplesIn(scrape?.text ?? '', metrics);
  const [first, second] = quiet ?? [];
  const [quietFirst, quietSecond, before, after] = [read(first), read(second), read(caused?.[0]), read(caused?.[1])];
  const names = new Set([...quietSecond.keys(), ...after.keys()]);
  return [...names].map((key) => {
    const sample = after.get(key) ?? quietSecond.get(key);
    const labels = sample?.labels ?? '';
    const of = (samples: Map<string, Sample>, scrape: Scrape | null | undefined) =>
      shifted(samples.get(key), scrape?.time ?? 0);
    const calm = stretch(of(quietFirst, first), of(quietSecond, second), sample?.isCounter === true, causeMinute + 1);
    const from = caused === undefined ? of(quietFirst, first) : of(before, caused[0]);
    const to = caused === undefined ? of(quietSecond, second) : of(after, caused[1]);
    const begun = calm.at(-1);
    const then = sample?.isCounter === true ? grown(begun ?? null, from, to) : stretch(null, to, false, causedMinutes);
    return {
      series: `${sample?.name ?? ''}{${labels === '' ? '' : `${labels},`}${target}}`,
      values: [...calm, ...then].map(shown).join(' '),
    };
  });
}

/** Moments are told from the beginning of the test, which is 1970 to promtool; the cause is now. */
function shifted(sample: Sample | undefined, scrapedAt: number): number | null {
  if (sample === undefined) return null;
  const isMoment = /_(?:after|before|timestamp)_seconds$/.test(sample.name);
  return isMoment ? sample.value - scrapedAt + causeMinute * 60 : sample.value;
}

/** Minutes like one in which a value went from one to another; a gauge is as it was last. */
function stretch(from: number | null, to: number | null, isCounter: boolean, minutes: number): (number | null)[] {
  if (to === null) return Array.from({ length: minutes }, () => null);
  const step = isCounter ? to - (from ?? 0) : 0;
  const start = isCounter ? (from ?? 0) : to;
  return Array.from({ length: minutes }, (_, minute) => start + step * minute);
}

/** A counter that goes on from where it was, each minute by as much as the cause added. */
function grown(begun: number | null, from: number | null, to: number | null): (number | null)[] {
  const step = to === null ? 0 : to - (from ?? 0);
  // One that a restart set back begins again.
  const start = step < 0 ? 0 : (begun ?? 0);
  const gain = step < 0 ? (to ?? 0) : step;
  return Array.from({ length: causedMinutes }, (_, minute) => (to === null ? null : start + gain * (minute + 1)));
}

function shown(value: number | null, index: number, all: readonly (number | null)[]): string {
  if (value === null) return all[index - 1] !== null && index > 0 ? 'stale' : '_';
  if (Number.isNaN(value)) return 'NaN';
  if (!Number.isFinite(value)) return value > 0 ? 'Inf' : '-Inf';
  return value.toFixed(9).replace(/\.?0+$/, '');
}
