import type { InputSeries } from './promtool.js';

/** The metrics of a process at one time. */
export interface Scrape {
  readonly text: string;
  /** In seconds since 1970. */
  readonly time: number;
}

/** A monitored process: its labels in Prometheus, and its metrics. */
export interface Watched {
  /** The suffix of its Service name in the chart, e.g. `live-management`. */
  readonly service: string;
  readonly instance: string;
  /**
   * The metrics before and after a minute of ordinary traffic. The quiet hour repeats this minute. Null: no process
   * existed yet.
   */
  readonly quiet: readonly [Scrape, Scrape] | null;
  /**
   * The metrics before and after the cause of an alert. The effect of the cause repeats each minute. Null: no metrics
   * exist at that time.
   */
  readonly caused?: readonly [Scrape | null, Scrape | null];
}

/** Start of the cause, in minutes from the start of the scenario. Earlier minutes have ordinary traffic. */
export const causeMinute = 70;
/** Duration of the cause, in minutes. */
export const causedMinutes = 20;

interface Sample {
  readonly name: string;
  readonly labels: string;
  readonly isCounter: boolean;
  readonly value: number;
}

/** Parses the samples of a metrics text, by series. */
function samplesIn(text: string, metrics: ReadonlySet<string> | null): Map<string, Sample> {
  const samples = new Map<string, Sample>();
  let type = '';
  for (const line of text.split('\n')) {
    const [, kind] = /^# TYPE \S+ (\w+)$/.exec(line) ?? [];
    if (kind !== undefined) type = kind;
    const [, name = '', labels = '', value = ''] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
    if (name === '' || metrics?.has(name) === false) continue;
    const isCounter = type !== 'gauge' || name === 'registry_redis_evicted_keys'; // a gauge here, but a counter in Redis
    samples.set(`${name}{${labels}}`, { name, labels, isCounter, value: numberOf(value) });
  }
  return samples;
}

function numberOf(text: string): number {
  if (text === 'Nan' || text === 'NaN') return NaN;
  return Number(text.replace('+Inf', 'Infinity').replace('-Inf', '-Infinity'));
}

/**
 * The series of processes: a quiet hour, then the effect of the cause.
 * @param metrics names of the metrics to include; null: all
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

/**
 * The value of a sample; null without a sample. Timestamps are shifted, because for promtool the test starts in 1970
 * and the scrape happens at the start of the cause.
 */
function shifted(sample: Sample | undefined, scrapedAt: number): number | null {
  if (sample === undefined) return null;
  const isMoment = /_(?:after|before|timestamp)_seconds$/.test(sample.name);
  return isMoment ? sample.value - scrapedAt + causeMinute * 60 : sample.value;
}

/**
 * One value for each of these minutes. A counter starts at `from` and grows by `to` minus `from` each minute. A gauge
 * has the value `to` in each minute.
 */
function stretch(from: number | null, to: number | null, isCounter: boolean, minutes: number): (number | null)[] {
  if (to === null) return Array.from({ length: minutes }, () => null);
  const step = isCounter ? to - (from ?? 0) : 0;
  const start = isCounter ? (from ?? 0) : to;
  return Array.from({ length: minutes }, (_, minute) => start + step * minute);
}

/**
 * The values of a counter during the cause, one for each minute. The counter continues from `begun`, and grows by
 * `to` minus `from` each minute.
 */
function grown(begun: number | null, from: number | null, to: number | null): (number | null)[] {
  const step = to === null ? 0 : to - (from ?? 0);
  // After a restart has reset a counter, it starts from 0 again.
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
