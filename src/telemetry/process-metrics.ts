import { createRequire } from 'node:module';
import { Gauge } from 'prom-client';
import type { Registry } from 'prom-client';

/** The type of a module of prom-client that registers one default metric. These modules have no types of their own. */
type Register = (registry: Registry, config: { readonly eventLoopMonitoringPrecision: number }) => void;

const resolutionMilliseconds = 10;

/** All default metrics of prom-client except `gc`, the durations of garbage collections. */
const chosen = [
  ...['processCpuTotal', 'processStartTime', 'osMemoryHeap', 'processOpenFileDescriptors', 'processMaxFileDescriptors'],
  ...['eventLoopLag', 'processResources', 'processHandles', 'processRequests'],
  ...['heapSizeAndUsed', 'heapSpacesSizeAndUsed', 'version'],
];

/** The version of this product, and the digest of its configuration. */
export interface Build {
  readonly version: string;
  readonly config: string;
}

/** Used by tests and other callers that pass no build. */
const unknownBuild: Build = { version: 'unknown', config: 'unknown' };

/** Registers a metric that is always 1. Its labels are the product and Node versions and the configuration digest. */
function registerBuild(registry: Registry, part: string, { version, config }: Build): void {
  new Gauge({
    name: `${part}_build_info`,
    help: 'Always 1. The labels are the product version, the Node version and the digest of the configuration.',
    labelNames: ['version', 'node', 'config'],
    aggregator: 'max',
    registers: [registry],
  }).set({ version, node: process.versions.node, config }, 1);
}

/**
 * Registers the metrics of the process and of Node. Does not observe garbage collections: Node would create an entry
 * for each collection, and keep the entry in memory until the next major collection. Under load, these entries take up
 * to half a megabyte per second.
 */
export function collectProcessMetrics(
  registry: Registry,
  part: 'gateway' | 'registry' | 'services',
  build: Build = unknownBuild,
): void {
  registerBuild(registry, part, build);
  const require = createRequire(import.meta.url);
  for (const name of chosen) {
    const register = require(`prom-client/lib/metrics/${name}.js`) as Register;
    register(registry, { eventLoopMonitoringPrecision: resolutionMilliseconds });
  }
}
