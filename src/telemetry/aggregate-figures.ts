import { AggregatorRegistry } from 'prom-client';
import type { MetricObject } from 'prom-client';

/** The text format that Prometheus reads, and its content type. */
export interface RenderedMetrics {
  readonly contentType: string;
  readonly text: string;
}

/** The figures of one process, as prom-client tells them. */
export type Figures = readonly object[];

/** Makes one answer of the metrics of several processes, each by its own way of aggregation. */
export async function aggregateFigures(processes: readonly Figures[]): Promise<RenderedMetrics> {
  const registry = AggregatorRegistry.aggregate([...processes]);
  return { contentType: registry.contentType, text: await registry.metrics() };
}

/** Makes one process's figures of those of several. */
export async function sumFigures(processes: readonly Figures[]): Promise<Figures> {
  return AggregatorRegistry.aggregate([...processes]).getMetricsAsJSON();
}

/** Those that only ever grow: Prometheus takes a fall for a restart, and counts all of what is left once more. */
export function growingFigures(figures: Figures): Figures {
  return figures.filter((figure) => ['counter', 'histogram'].includes(String((figure as Partial<MetricObject>).type)));
}
