import { chmod } from './starts.js';
import type { WrongStart } from './starts.js';

/** The URLs of the servers that the tests start, and a folder of files. */
export interface Servers {
  readonly plain: string;
  readonly locked: string;
  readonly secure: string;
  readonly node: string;
  readonly replica: string;
  readonly evicting: string;
  readonly sentinel: string;
  readonly lockedSentinel: string;
  readonly takenPort: number;
  readonly emptyPostgres: string;
  readonly postgresOfServices: string;
}

/** Mistakes with servers, databases and ports. */
export function wrongServers(at: Servers): readonly WrongStart[] {
  const redis = (options: object) => ({ keyStore: { kind: 'redis', redis: options } });
  const database = (part: 'registry' | 'services', url: string) => ({ [part]: { database: { url } } });
  const continues = true as const;
  return [
    ...(['gateway', 'registry'] as const).flatMap((part): WrongStart[] => [
      {
        what: `${part}: a Redis that does not run`,
        part,
        continues,
        options: redis({ url: 'redis://127.0.0.1:1' }),
        messages: [
          /"option":"keyStore\.redis\.url","msg":"Redis at 127\.0\.0\.1:1 refused the connection: start the server/,
        ],
      },
      {
        what: `${part}: a wrong Redis password`,
        part,
        continues,
        options: redis({ url: at.locked, passwordFile: 'token' }),
        messages: [
          /"option":"keyStore\.redis\.passwordFile","msg":"Redis at \S+ refuses the user or the password \(WRONGPASS\): correct them/,
        ],
      },
      {
        what: `${part}: a missing Redis password`,
        part,
        continues,
        options: redis({ url: at.locked }),
        messages: [/passwordFile","msg":"Redis at \S+ requires a password \(NOAUTH\): configure a file/],
      },
      {
        what: `${part}: TLS to a Redis without TLS`,
        part,
        continues,
        options: redis({ url: at.plain.replace('redis:', 'rediss:') }),
        messages: [/does not use TLS, but TLS is configured: write redis:/],
      },
      {
        what: `${part}: no TLS to a Redis with TLS`,
        part,
        continues,
        options: redis({ url: at.secure.replace('rediss:', 'redis:') }),
        messages: [/uses TLS, but TLS is not configured: write rediss:/],
      },
      {
        what: `${part}: a Redis certificate from an unknown authority`,
        part,
        continues,
        options: redis({ url: at.secure }),
        messages: [/"option":"keyStore\.redis\.caFile","msg":".* not signed by a trusted CA/],
      },
      {
        what: `${part}: a Cluster node configured as a single server`,
        part,
        continues,
        options: redis({ url: at.node }),
        messages: [/is a node of a Cluster: name some of its nodes in keyStore\.redis\.cluster/],
      },
      {
        what: `${part}: a single server configured as a Cluster`,
        part,
        continues,
        options: redis({ cluster: [at.plain.replace('redis://', '')] }),
        messages: [/is a single server, not a Cluster node: name it in keyStore\.redis\.url/],
      },
      {
        what: `${part}: a replica instead of the master`,
        part,
        continues,
        options: redis({ url: at.replica }),
        messages: [/is a replica and refuses writes: configure the address of the master/],
      },
      {
        what: `${part}: a sentinel configured as a Redis server`,
        part,
        continues,
        options: redis({ url: `redis://${at.sentinel}` }),
        messages: [/is a sentinel: name it in keyStore\.redis\.sentinel\.servers/],
      },
      {
        what: `${part}: a master that the sentinels do not know`,
        part,
        continues,
        options: redis({ sentinel: { servers: [at.sentinel], masterName: 'other' } }),
        messages: [/masterName","msg":"the sentinel at \S+ monitors no master \\"other\\"; it monitors: mymaster/],
      },
      {
        what: `${part}: a wrong sentinel password`,
        part,
        continues,
        options: redis({ sentinel: { servers: [at.lockedSentinel], passwordFile: 'token' } }),
        messages: [/sentinel\.passwordFile","msg":"the sentinel at \S+ refuses the user or the password/],
      },
      {
        what: `${part}: a Redis user without rights`,
        part,
        continues,
        options: redis({ url: at.locked, username: 'few', passwordFile: 'password' }),
        messages: [/"option":"keyStore\.redis\.username","msg":"the user \\"few\\" of Redis lacks rights .*\+eval/],
      },
      {
        what: `${part}: a Redis database that does not exist`,
        part,
        continues,
        options: redis({ url: `${at.plain}/99` }),
        messages: [/has no database 99: use a lower number/],
      },
      {
        what: `${part}: a Redis host name that does not exist`,
        part,
        continues,
        options: redis({ url: 'redis://nowhere.invalid' }),
        messages: [
          /"option":"keyStore\.redis\.url","msg":"Redis at nowhere\.invalid:6379 (?:has an unknown host name|cannot be found)/,
        ],
      },
    ]),
    {
      what: 'a Redis that evicts',
      part: 'registry',
      continues,
      options: redis({ url: at.evicting }),
      messages: [/noeviction/],
    },
    {
      what: 'a record secret that is too short',
      part: 'registry',
      options: { keys: { recordSecretFile: 'short' } },
      messages: [/secret of records \S+\/short is too short: line 1 has fewer than 32 bytes/],
    },
    {
      what: 'an empty Redis password',
      part: 'registry',
      options: redis({ passwordFile: 'empty' }),
      messages: [/The password of Redis \S+\/empty is empty: write the password to this file/],
    },
    {
      what: 'a Redis password that every user can read',
      part: 'registry',
      options: redis({ passwordFile: 'open' }),
      messages: [chmod],
    },
    {
      what: 'a port in use',
      part: 'gateway',
      ownProcess: true,
      options: { listen: { https: { port: at.takenPort } } },
      messages: [
        /Cannot listen on 127\.0\.0\.1:\d+ \(listen\.https\): the port is in use; stop the process that uses it or choose another port/,
      ],
    },
    {
      what: 'an address that this machine does not have',
      part: 'gateway',
      options: { listen: { https: { host: '192.0.2.1' } } },
      messages: [/\(listen\.https\): this machine does not have that address/],
    },
    {
      what: 'a registry port in use',
      part: 'registry',
      ownProcess: true,
      options: { registry: { listen: { port: at.takenPort } } },
      messages: [/\(registry\.listen\): the port is in use/],
    },
    {
      what: 'a services port in use',
      part: 'services',
      ownProcess: true,
      options: { services: { listen: { port: at.takenPort } } },
      messages: [/\(services\.listen\): the port is in use/],
    },
    {
      what: 'a registry without a token',
      part: 'registry',
      options: { registry: { tokenFile: null } },
      messages: [
        /registry\.tokenFile: expected the path of a file with the shared token of administrators, or registry\.bootstrap: off/,
      ],
    },
    {
      what: 'an admin token that is too short',
      part: 'registry',
      options: { registry: { tokenFile: 'short' } },
      messages: [/The token file \S+\/short must contain one token of at least 32/],
    },
    ...(['registry', 'services'] as const).flatMap((part): WrongStart[] => [
      {
        what: `${part}: a missing database`,
        part,
        options: database(part, 'sqlite:nowhere.db'),
        messages: [
          new RegExp(
            `There is no database \\S+/nowhere\\.db \\(${part}\\.database\\.url\\): for a new installation, pass --create`,
          ),
        ],
      },
      {
        what: `${part}: a database without tables`,
        part,
        options: database(part, at.emptyPostgres),
        messages: [
          new RegExp(
            `has no tables of the ${part} \\(${part}\\.database\\.url\\): for a new installation, pass --create`,
          ),
        ],
      },
      {
        what: `${part}: a file that is not a database`,
        part,
        options: database(part, 'sqlite:token'),
        messages: [/\S+\/token is not an SQLite database: move it away, or choose another path/],
      },
      {
        what: `${part}: a directory instead of a database`,
        part,
        options: database(part, 'sqlite:.'),
        messages: [/cannot be opened for writing \(it is a directory\): check that it is a file/],
      },
      {
        what: `${part}: a PostgreSQL that does not run`,
        part,
        options: database(part, 'postgres://u:p@127.0.0.1:1/d'),
        messages: [
          /d at 127\.0\.0\.1:1 cannot be used: connection refused; start PostgreSQL, or correct the host and the port/,
        ],
      },
      {
        what: `${part}: a PostgreSQL database that does not exist`,
        part,
        options: database(part, at.emptyPostgres.replace(/\/\w+$/, '/nowhere')),
        messages: [/nowhere at \S+ cannot be used: there is no such database; create it first/],
      },
      {
        what: `${part}: a PostgreSQL host name that does not exist`,
        part,
        options: database(part, 'postgres://u:p@nowhere.invalid/d'),
        messages: [/its host name does not exist; correct the host|its host name cannot be resolved/],
      },
    ]),
    {
      what: 'the database of the services for the registry',
      part: 'registry',
      options: database('registry', at.postgresOfServices),
      messages: [/The database belongs to another part of merchant-gateway .* give each part a separate database/],
    },
  ];
}
