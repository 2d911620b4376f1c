import { chmod } from './starts.js';
import type { WrongStart } from './starts.js';

const https = (options: object) => ({ listen: { https: options } });

/** Mistakes in files that a gateway or the services read. */
export const wrongFiles: readonly WrongStart[] = [
  {
    what: 'a missing certificate',
    options: https({ certFile: 'nowhere' }),
    messages: [/certificate \S+\/nowhere cannot be read: there is no such file/],
  },
  {
    what: 'a certificate that is a directory',
    options: https({ certFile: '.' }),
    messages: [/certificate \S+ cannot be read: it is a directory/],
  },
  {
    what: 'a file that is not a certificate',
    options: https({ certFile: 'token' }),
    messages: [/certificate \S+\/token is not a PEM certificate/],
  },
  {
    what: 'a missing private key',
    options: https({ keyFile: 'nowhere' }),
    messages: [/private key \S+\/nowhere cannot be read: there is no such file/],
  },
  {
    what: 'a file that is not a private key',
    options: https({ keyFile: 'cert' }),
    messages: [/private key \S+\/cert must be an unencrypted private key in PEM format/],
  },
  {
    what: 'the private key of another certificate',
    options: https({ keyFile: 'other-key' }),
    messages: [/certificate \S+\/cert and the private key \S+\/other-key do not belong together/],
  },
  { what: 'a private key that every user can read', options: https({ keyFile: 'open-key' }), messages: [chmod] },
  {
    what: 'ticket keys of the wrong length',
    options: https({ ticketKeysFile: 'token' }),
    messages: [/ticket keys \S+\/token has \d+ bytes; expected 48/],
  },
  {
    what: 'a client CA file that is not a certificate',
    options: https({ clientCertificates: 'require', clientCaFile: 'token' }),
    messages: [/CA certificate \S+\/token is not a PEM certificate/],
  },
  {
    what: 'a certificate that has expired',
    options: https({ certFile: 'expired-cert', keyFile: 'expired-key' }),
    continues: true,
    messages: [/"level":"error".*clients reject the certificate: the certificate \S+\/expired-cert expired on \d{4}-/],
  },
  {
    what: 'a certificate that is not valid yet',
    options: https({ certFile: 'early-cert', keyFile: 'early-key' }),
    continues: true,
    messages: [/"level":"error".*the certificate \S+\/early-cert is not valid before \d{4}-/],
  },
  {
    what: 'a certificate that expires within 14 days',
    options: https({ certFile: 'soon-cert', keyFile: 'soon-key' }),
    continues: true,
    messages: [/"level":"warn".*the certificate \S+\/soon-cert expires on \d{4}-\S+: renew it/],
  },
  {
    what: 'a missing pepper file',
    options: { keys: { pepperFile: 'nowhere' } },
    messages: [/The pepper \S+\/nowhere cannot be read/],
  },
  {
    what: 'an empty pepper file',
    options: { keys: { pepperFile: 'empty' } },
    messages: [/The pepper \S+\/empty is shorter than 16 bytes/],
  },
  {
    what: 'a pepper with a byte order mark',
    options: { keys: { pepperFile: 'marked' } },
    messages: [/begins with a byte order mark: save it without this mark/],
  },
  {
    what: 'a pepper with blank lines',
    options: { keys: { pepperFile: 'lines' } },
    messages: [/has several line breaks at its end; keep at most one/],
  },
  { what: 'a pepper that every user can read', options: { keys: { pepperFile: 'open' } }, messages: [chmod] },
  {
    what: 'a pepper instead of its file name',
    options: { keys: { pepperFile: '5'.repeat(64) } },
    messages: [/looks like a secret, so it is not shown. Write the secret to a file/],
  },
  {
    what: 'an access log secret that is too short',
    options: { accessLog: { secretFile: 'empty' } },
    messages: [/The secret of the access log \S+\/empty is shorter than 16 bytes/],
  },
  {
    what: 'an access log that is a directory',
    options: { accessLog: { destination: '.' } },
    messages: [
      /The access log \S+ cannot be opened for appending: it is a directory; configure stdout or a file that this user may write/,
    ],
  },
  {
    what: 'an access log path through a file',
    options: { accessLog: { destination: 'token/access.log' } },
    messages: [
      /The access log \S+token\/access\.log cannot be opened for appending: .*; configure stdout or a file that this user may write/,
    ],
  },
  {
    what: 'a file that is not a signing key',
    options: { identity: { signingKeyFile: 'token' } },
    messages: [/The signing key \S+\/token must be an unencrypted private key in PEM format/],
  },
  {
    what: 'an RSA signing key',
    options: { identity: { signingKeyFile: 'rsa-key' } },
    messages: [/must be an Ed25519 or a P-256 key/],
  },
  {
    what: 'a file that is not a country database',
    options: { geoip: { countryFile: 'token' } },
    messages: [/The country database \S+\/token/],
  },
  {
    what: 'a records file that is not JSON',
    options: { keyStore: { memory: { recordsFile: 'token' } } },
    messages: [/\S+\/token/],
  },
  {
    what: 'no records file',
    options: { keyStore: { memory: { recordsFile: null } } },
    messages: [/keyStore\.memory\.recordsFile: expected the path of a file, because keyStore\.kind is memory/],
  },
  {
    what: 'a missing CA file of an upstream',
    options: { upstreams: { a: { url: 'https://127.0.0.1:1', caFile: 'nowhere' } } },
    messages: [/The CA certificate \S+\/nowhere cannot be read/],
  },
  {
    what: 'a missing token file for traces',
    options: { traces: { endpoint: 'http://127.0.0.1:1/v1/traces', tokenFile: 'nowhere' } },
    messages: [/The token for traces \S+\/nowhere cannot be read/],
  },
  {
    what: 'a missing published key without a signing key',
    options: { identity: { publishedKeyFiles: ['nowhere'] } },
    messages: [/The identity key \S+\/nowhere cannot be read/],
  },
  {
    what: 'services with published keys only',
    part: 'services',
    continues: true,
    options: { identity: { publishedKeyFiles: ['nowhere'] } },
    messages: [
      /identity\.publishedKeyFiles has no effect on the services, because neither identity\.signingKeyFile nor/,
    ],
  },
  {
    what: 'no TLS and no trusted proxies',
    options: { listen: { https: null, http: { port: 0 } } },
    messages: [
      /listen\.https: without a TLS listener and without trustedProxies the gateway would reject every request: expected/,
    ],
  },
  {
    what: 'workers that share standard output',
    options: { accessLog: { destination: 'stdout' } },
    args: ['--workers', '2'],
    messages: [
      /accessLog\.destination: several worker processes cannot share standard output.*expected the path of a file/,
    ],
  },
].map((row): WrongStart => ({ part: 'gateway', ...row }) as WrongStart);
