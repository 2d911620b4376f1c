import { AggregatorRegistry } from 'prom-client';

/** The text format that Prometheus reads, and its content type. */
export interface RenderedMetrics {
  readonly contentType: string;
  readonly text: string;
}

/** Makes one answer of the metrics of several processes, each by its own way of aggregation. */
export async function aggregateFigures(processes: readonly (readonly object[])[]): Promise<RenderedMetrics> {
  const registry = AggregatorRegistry.aggregate([...processes]);
  return { contentType: registry.contentType, text: await registry.metrics() };
}
