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
  const goesOn = true as const;
  return [
    ...(['gateway', 'registry'] as const).flatMap((part): WrongStart[] => [
      {
        what: `${part}: a Redis that is away`,
        part,
        goesOn,
        options: redis({ url: 'redis://127.0.0.1:1' }),
        said: [/"option":"keyStore\.redis\.url","msg":"Redis at 127\.0\.0\.1:1: nothing listens there: start it/],
      },
      {
        what: `${part}: a wrong password of Redis`,
        part,
        goesOn,
        options: redis({ url: at.locked, passwordFile: 'token' }),
        said: [
          /"option":"keyStore\.redis\.passwordFile","msg":"Redis at \S+ refuses the user or the password \(WRONGPASS\): correct them/,
        ],
      },
      {
        what: `${part}: no password for Redis`,
        part,
        goesOn,
        options: redis({ url: at.locked }),
        said: [/passwordFile","msg":"Redis at \S+ requires a password \(NOAUTH\): set the file/],
      },
      {
        what: `${part}: TLS to a plain Redis`,
        part,
        goesOn,
        options: redis({ url: at.plain.replace('redis:', 'rediss:') }),
        said: [/does not use TLS, but TLS is configured: write redis:/],
      },
      {
        what: `${part}: no TLS to a Redis with TLS`,
        part,
        goesOn,
        options: redis({ url: at.secure.replace('rediss:', 'redis:') }),
        said: [/uses TLS, but TLS is not configured: write rediss:/],
      },
      {
        what: `${part}: a Redis that nobody vouches for`,
        part,
        goesOn,
        options: redis({ url: at.secure }),
        said: [/"option":"keyStore\.redis\.caFile","msg":".* not signed by a trusted authority/],
      },
      {
        what: `${part}: a node of a Cluster as one server`,
        part,
        goesOn,
        options: redis({ url: at.node }),
        said: [/is a node of a Cluster: name some of its nodes in keyStore\.redis\.cluster/],
      },
      {
        what: `${part}: a server as a Cluster`,
        part,
        goesOn,
        options: redis({ cluster: [at.plain.replace('redis://', '')] }),
        said: [/is a single server, not a Cluster node: name it in keyStore\.redis\.url/],
      },
      {
        what: `${part}: a replica`,
        part,
        goesOn,
        options: redis({ url: at.replica }),
        said: [/is a replica and refuses writes: name the master/],
      },
      {
        what: `${part}: a sentinel as Redis`,
        part,
        goesOn,
        options: redis({ url: `redis://${at.sentinel}` }),
        said: [/is a sentinel: name it in keyStore\.redis\.sentinel\.servers/],
      },
      {
        what: `${part}: a master that the sentinels do not know`,
        part,
        goesOn,
        options: redis({ sentinel: { servers: [at.sentinel], masterName: 'other' } }),
        said: [/masterName","msg":"the sentinel at \S+ knows no master \\"other\\"; it knows: mymaster/],
      },
      {
        what: `${part}: a wrong password of the sentinels`,
        part,
        goesOn,
        options: redis({ sentinel: { servers: [at.lockedSentinel], passwordFile: 'token' } }),
        said: [/sentinel\.passwordFile","msg":"the sentinel at \S+ refuses the user or the password/],
      },
      {
        what: `${part}: a user without rights`,
        part,
        goesOn,
        options: redis({ url: at.locked, username: 'few', passwordFile: 'password' }),
        said: [/"option":"keyStore\.redis\.username","msg":"the user \\"few\\" of Redis lacks rights .*\+eval/],
      },
      {
        what: `${part}: a database of Redis that is none`,
        part,
        goesOn,
        options: redis({ url: `${at.plain}/99` }),
        said: [/has no database 99: use a lower number/],
      },
      {
        what: `${part}: a name of Redis that is none`,
        part,
        goesOn,
        options: redis({ url: 'redis://nowhere.invalid' }),
        said: [
          /"option":"keyStore\.redis\.url","msg":"Redis at nowhere\.invalid:6379: (?:host name not found|DNS lookup failed)/,
        ],
      },
    ]),
    {
      what: 'a Redis that evicts',
      part: 'registry',
      goesOn,
      options: redis({ url: at.evicting }),
      said: [/noeviction/],
    },
    {
      what: 'a secret of records that is too short',
      part: 'registry',
      options: { keys: { recordSecretFile: 'short' } },
      said: [/secret of records \S+\/short has a line that is shorter than 32 bytes/],
    },
    {
      what: 'a password of Redis that is empty',
      part: 'registry',
      options: redis({ passwordFile: 'empty' }),
      said: [/The password of Redis \S+\/empty is empty: write the password to this file/],
    },
    {
      what: 'a password of Redis that everybody can read',
      part: 'registry',
      options: redis({ passwordFile: 'open' }),
      said: [chmod],
    },
    {
      what: 'a port that is taken',
      part: 'gateway',
      options: { listen: { https: { port: at.takenPort } } },
      said: [
        /Cannot listen on 127\.0\.0\.1:\d+ \(listen\.https\): the port is in use; stop the process that uses it or choose another port/,
      ],
    },
    {
      what: 'an address that this machine has not',
      part: 'gateway',
      options: { listen: { https: { host: '192.0.2.1' } } },
      said: [/\(listen\.https\): this machine does not have that address/],
    },
    {
      what: 'a port of the registry that is taken',
      part: 'registry',
      options: { registry: { listen: { port: at.takenPort } } },
      said: [/\(registry\.listen\): the port is in use/],
    },
    {
      what: 'a port of the services that is taken',
      part: 'services',
      options: { services: { listen: { port: at.takenPort } } },
      said: [/\(services\.listen\): the port is in use/],
    },
    {
      what: 'a registry without a token',
      part: 'registry',
      options: { registry: { tokenFile: null } },
      said: [/registry\.tokenFile: expected the path of a file with the administrators' token/],
    },
    {
      what: 'a token of administrators that is too short',
      part: 'registry',
      options: { registry: { tokenFile: 'short' } },
      said: [/The token file \S+\/short must hold one token of at least 32/],
    },
    ...(['registry', 'services'] as const).flatMap((part): WrongStart[] => [
      {
        what: `${part}: a database that is not there`,
        part,
        options: database(part, 'sqlite:nowhere.db'),
        said: [new RegExp(`There is no database \\S+/nowhere\\.db \\(${part}\\.database\\.url\\): pass --create`)],
      },
      {
        what: `${part}: a database without tables`,
        part,
        options: database(part, at.emptyPostgres),
        said: [new RegExp(`has no tables of the ${part} \\(${part}\\.database\\.url\\): pass --create`)],
      },
      {
        what: `${part}: a file that is no database`,
        part,
        options: database(part, 'sqlite:token'),
        said: [/\S+\/token is not an SQLite database: move it away, or choose another path/],
      },
      {
        what: `${part}: a directory as database`,
        part,
        options: database(part, 'sqlite:.'),
        said: [/cannot be opened for writing: check that it is a file/],
      },
      {
        what: `${part}: a PostgreSQL that is away`,
        part,
        options: database(part, 'postgres://u:p@127.0.0.1:1/d'),
        said: [/d at 127\.0\.0\.1:1 cannot be used: nothing listens there; start PostgreSQL or correct host and port/],
      },
      {
        what: `${part}: a PostgreSQL database that is none`,
        part,
        options: database(part, at.emptyPostgres.replace(/\/\w+$/, '/nowhere')),
        said: [/nowhere at \S+ cannot be used: there is no such database; create it first/],
      },
      {
        what: `${part}: a host of PostgreSQL that is none`,
        part,
        options: database(part, 'postgres://u:p@nowhere.invalid/d'),
        said: [/its host name does not exist; correct the host|its host name cannot be resolved/],
      },
    ]),
    {
      what: 'the database of the services for the registry',
      part: 'registry',
      options: database('registry', at.postgresOfServices),
      said: [/The database belongs to another part .* give each part a separate database/],
    },
  ];
}
