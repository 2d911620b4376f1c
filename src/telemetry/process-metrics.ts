import { createRequire } from 'node:module';
import { Gauge } from 'prom-client';
import type { Registry } from 'prom-client';

/** prom-client has each default metric in a separate file, without types. */
type Register = (registry: Registry, config: { readonly eventLoopMonitoringPrecision: number }) => void;

const resolutionMilliseconds = 10;

/** All default metrics except `gc`, the durations of garbage collections. */
const chosen = [
  ...['processCpuTotal', 'processStartTime', 'osMemoryHeap', 'processOpenFileDescriptors', 'processMaxFileDescriptors'],
  ...['eventLoopLag', 'processResources', 'processHandles', 'processRequests'],
  ...['heapSizeAndUsed', 'heapSpacesSizeAndUsed', 'version'],
];

/** The running build: the product's version and the digest of its configuration. */
export interface Build {
  readonly version: string;
  readonly config: string;
}

/** For tests and other callers that pass no build. */
const unknownBuild: Build = { version: 'unknown', config: 'unknown' };

/** Registers the build of this process, as a metric that is always 1. */
function registerBuild(registry: Registry, part: string, { version, config }: Build): void {
  new Gauge({
    name: `${part}_build_info`,
    help: '1; labels: the product version, the Node version, and the configuration digest.',
    labelNames: ['version', 'node', 'config'],
    aggregator: 'max',
    registers: [registry],
  }).set({ version, node: process.versions.node, config }, 1);
}

/**
 * Registers the metrics of the process and of Node. Garbage collections are not observed: for each, Node creates an
 * entry with accessors, which stays in the old generation until its next collection. Under load that was up to half a
 * megabyte per second.
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
