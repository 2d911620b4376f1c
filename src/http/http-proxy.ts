import Module, { createRequire } from 'node:module';
import type plugin from '@fastify/http-proxy';
import { Agent, BalancedPool, Client, Dispatcher, Pool } from '../undici/undici.js';

const require = createRequire(import.meta.url);

/**
 * @fastify/http-proxy. It requires undici as a whole, of which it uses these parts here: they stand in for the whole while it is
 * loaded, unless that is loaded already. Whoever asks for undici later gets all of it.
 */
export const httpProxy = loadWith({ Agent, BalancedPool, Client, Dispatcher, Pool });

function loadWith(parts: object): typeof plugin {
  const whole = require.resolve('undici');
  const standsIn = require.cache[whole] === undefined;
  if (standsIn) require.cache[whole] = Object.assign(new Module(whole), { exports: parts, loaded: true });
  try {
    return require('@fastify/http-proxy') as typeof plugin;
  } finally {
    if (standsIn) Reflect.deleteProperty(require.cache, whole);
  }
}
