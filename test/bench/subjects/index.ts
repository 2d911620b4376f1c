import { gateway } from './gateway.js';
import { haproxy } from './haproxy.js';
import { nginx } from './nginx.js';
import { nodePeer } from './node-peer.js';
import { peers } from './peers.js';
import type { Subject } from './subject.js';

/** Everything that can be measured, in the order of the tables. */
export const subjects: readonly Subject[] = [
  gateway('gateway', 'merchant-gateway, everything on', 'on'),
  gateway('gateway-log-off', 'merchant-gateway, log off', 'off'),
  nodePeer({ name: 'stock-log', title: 'fastify + http-proxy, pino line', program: 'stock.mjs', log: true }),
  nodePeer({ name: 'stock', title: 'fastify + http-proxy', program: 'stock.mjs', log: false }),
  nodePeer({ name: 'dispatch', title: 'node:http + undici dispatch', program: 'dispatch.mjs', log: false }),
  ...peers,
  nginx,
  haproxy,
];
