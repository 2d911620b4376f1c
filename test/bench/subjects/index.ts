import { gateway } from './gateway.js';
import { haproxy } from './haproxy.js';
import { nginx } from './nginx.js';
import { nodePeer } from './node-peer.js';
import { peers } from './peers.js';
import type { Subject } from './subject.js';

/** All subjects, in the order of the tables. */
export const subjects: readonly Subject[] = [
  gateway({ name: 'gateway', title: 'merchant-gateway, everything on', log: true }),
  gateway({
    ...{ name: 'gateway-log-off', title: 'merchant-gateway, log off', log: false },
    program: ['test/bench/subjects/gateway-log-off.mjs'],
  }),
  gateway({ name: 'gateway-million', title: 'merchant-gateway, 1,000,000 keys', log: true, keys: 1_000_000 }),
  gateway({ name: 'gateway-changes', title: 'merchant-gateway, 50 changes a second', log: true, changes: true }),
  nodePeer({ name: 'stock-log', title: 'fastify + http-proxy, pino line', program: 'stock.mjs', log: true }),
  nodePeer({ name: 'stock', title: 'fastify + http-proxy', program: 'stock.mjs', log: false }),
  nodePeer({ name: 'dispatch', title: 'node:http + undici dispatch', program: 'dispatch.mjs', log: false }),
  nodePeer({ name: 'sockets', title: 'node:net and node:tls alone', program: 'sockets.mjs', log: false }),
  ...peers,
  nginx,
  haproxy,
];
