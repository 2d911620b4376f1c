import { openClosedLoop } from './closed-loop.js';
import type { Target } from './connection.js';
import { openFixedRate } from './fixed-rate.js';
import type { Load } from './load.js';
import { openNewConnections } from './new-connections.js';

/** How requests reach a subject: on keep-alive connections, or on a new TLS connection each. */
export type Transport = 'plain' | 'tls' | 'tls-new' | 'tls-resumed';

/** Opens a load. @param perSecond null: as many requests as possible */
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
