import { openClosedLoop } from './closed-loop.js';
import type { Target } from './connection.js';
import { openFixedRate } from './fixed-rate.js';
import type { Load } from './load.js';
import { openNewConnections } from './new-connections.js';

/** How requests reach a subject: on connections that are kept, or a TLS connection for each. */
export type Transport = 'plain' | 'tls' | 'tls-new' | 'tls-resumed';

/** Opens what a kind of load needs. @param perSecond null: as many as there is time for */
export async function openLoad(
  transport: Transport,
  target: Target,
  connections: number,
  perSecond: number | null,
): Promise<Load> {
  if (perSecond !== null) return openFixedRate(target, connections, perSecond);
  switch (transport) {
    case 'plain':
    case 'tls':
      return openClosedLoop(target, connections);
    case 'tls-new':
    case 'tls-resumed':
      return openNewConnections(target, transport === 'tls-resumed');
  }
}
