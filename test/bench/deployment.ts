import type { Teardown } from '../adapters/redis-server.js';
import { type Deployment, type DeploymentOptions, merged, startDeployment } from '../deployment/deployment.js';
import { imageEnvironment } from './image-environment.js';

/** Settings that keep records cached for as long as a measurement takes. */
const benchSettings = { keyStore: { cache: { maxAgeSeconds: 600, unknownMaxAgeSeconds: 600 } } };

/** Starts a deployment whose processes have the environment variables of the container image. */
export function startBenchDeployment(t: Teardown, options: DeploymentOptions = {}): Promise<Deployment> {
  const settings = merged(benchSettings, options.settings ?? {}) as object;
  const { NODE_OPTIONS: nodeOptions = '', ...environment } = imageEnvironment;
  return startDeployment(t, {
    ...options,
    settings,
    process: { environment, nodeArguments: nodeOptions.split(' '), ...options.process },
  });
}
