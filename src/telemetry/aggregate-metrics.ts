import { AggregatorRegistry } from 'prom-client';
import type { MetricObject } from 'prom-client';

/** Metrics in Prometheus' text format, and the content type of that format. */
export interface RenderedMetrics {
  readonly contentType: string;
  readonly text: string;
}

/** The metrics of one process, as the JSON objects of prom-client. */
export type MetricObjects = readonly object[];

/**
 * Combines the metrics of several processes into one text. Each metric states how its values are combined (sum, min,
 * max).
 */
export async function aggregateMetrics(processes: readonly MetricObjects[]): Promise<RenderedMetrics> {
  const registry = AggregatorRegistry.aggregate([...processes]);
  return { contentType: registry.contentType, text: await registry.metrics() };
}

/** Combines the metrics of several processes, and returns them as JSON objects like those of one process. */
export async function combineMetrics(processes: readonly MetricObjects[]): Promise<MetricObjects> {
  return AggregatorRegistry.aggregate([...processes]).getMetricsAsJSON();
}

/**
 * Returns only the counters and histograms. The primary process keeps the latest ones of each worker, and adds them to
 * the sum while the worker does not respond. Otherwise the sum would decrease. Prometheus would take the decrease for a
 * restart, and count the remaining sum again.
 */
export function counterMetrics(metrics: MetricObjects): MetricObjects {
  return metrics.filter((metric) => ['counter', 'histogram'].includes(String((metric as Partial<MetricObject>).type)));
}
