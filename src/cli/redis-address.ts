import type { RedisAddress } from '../adapters/redis/connection.js';
import { OperatorError } from '../config/operator-error.js';
import { readOperatorFile } from '../config/operator-file.js';
import type { Config } from '../config/schema.js';

const maxPasswordBytes = 4096;
const maxPemBytes = 1024 * 1024;

/** Where Redis is, with the secrets that the configuration names by their files. */
export async function redisAddressOf(redis: Config['keyStore']['redis']): Promise<RedisAddress> {
  const { url, sentinel, cluster, username, passwordFile, caFile, commandTimeoutMilliseconds, replicas } = redis;
  return {
    url,
    sentinels: sentinel === null ? null : sentinel.servers.map(serverOf),
    masterName: sentinel?.masterName ?? '',
    cluster: cluster === null ? null : cluster.map(serverOf),
    username,
    password: passwordFile === null ? null : await readPassword(passwordFile),
    ca: caFile === null ? null : await readOperatorFile(caFile, 'The CA certificate', maxPemBytes),
    commandTimeoutMilliseconds,
    replicas,
  };
}

async function readPassword(file: string): Promise<string> {
  const contents = await readOperatorFile(file, 'The password', maxPasswordBytes);
  const password = contents.toString('utf8').replace(/\r?\n$/, '');
  if (password === '') throw new OperatorError(`The password ${file} is empty.`);
  return password;
}

function serverOf(text: string): { host: string; port: number } {
  const colon = text.lastIndexOf(':');
  return { host: text.slice(0, colon).replace(/^\[(.*)\]$/, '$1'), port: Number(text.slice(colon + 1)) };
}
