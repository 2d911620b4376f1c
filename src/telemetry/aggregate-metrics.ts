import { AggregatorRegistry } from 'prom-client';
import type { MetricObject } from 'prom-client';

/** Metrics in the text format of Prometheus, with its content type. */
export interface RenderedMetrics {
  readonly contentType: string;
  readonly text: string;
}

/** The metrics of one process, as prom-client's JSON objects. */
export type MetricObjects = readonly object[];

/** Combines the metrics of several processes into one text, each metric by its aggregator. */
export async function aggregateMetrics(processes: readonly MetricObjects[]): Promise<RenderedMetrics> {
  const registry = AggregatorRegistry.aggregate([...processes]);
  return { contentType: registry.contentType, text: await registry.metrics() };
}

/** Combines the metrics of several processes into the metrics of one. */
export async function combineMetrics(processes: readonly MetricObjects[]): Promise<MetricObjects> {
  return AggregatorRegistry.aggregate([...processes]).getMetricsAsJSON();
}

/**
 * Only the metrics that never decrease. Prometheus takes a decrease for a restart and counts the remaining value again.
 */
export function counterMetrics(metrics: MetricObjects): MetricObjects {
  return metrics.filter((metric) => ['counter', 'histogram'].includes(String((metric as Partial<MetricObject>).type)));
}
