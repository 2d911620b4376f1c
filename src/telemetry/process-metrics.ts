import { createRequire } from 'node:module';
import { Gauge } from 'prom-client';
import type { Registry } from 'prom-client';

/** Of prom-client's default metrics each is in a file of its own, which has no types. */
type Register = (registry: Registry, config: { readonly eventLoopMonitoringPrecision: number }) => void;

const resolutionMilliseconds = 10;

/** All of them but `gc`, the durations of collections. */
const chosen = [
  ...['processCpuTotal', 'processStartTime', 'osMemoryHeap', 'processOpenFileDescriptors', 'processMaxFileDescriptors'],
  ...['eventLoopLag', 'processResources', 'processHandles', 'processRequests'],
  ...['heapSizeAndUsed', 'heapSpacesSizeAndUsed', 'version'],
];

/** What runs: the version of the product, and what stands for its configuration. */
export interface Build {
  readonly version: string;
  readonly config: string;
}

/** In tests, and wherever nobody says. */
const unknownBuild: Build = { version: 'unknown', config: 'unknown' };

/** Registers what runs in this process, as a metric that is always 1. */
function registerBuild(registry: Registry, part: string, { version, config }: Build): void {
  new Gauge({
    name: `${part}_build_info`,
    help: '1; which version runs, on which Node, and what stands for its configuration.',
    labelNames: ['version', 'node', 'config'],
    aggregator: 'max',
    registers: [registry],
  }).set({ version, node: process.versions.node, config }, 1);
}

/**
 * Registers what is told of a process and of Node. Collections of garbage are not observed: for each one Node makes an
 * entry with accessors of its own, which stays in the old generation until all of that is collected. Under load that
 * was up to half a megabyte a second.
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
