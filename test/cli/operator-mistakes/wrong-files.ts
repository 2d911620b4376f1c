import { chmod } from './starts.js';
import type { WrongStart } from './starts.js';

const https = (options: object) => ({ listen: { https: options } });

/** Mistakes in files that a gateway reads. */
export const wrongFiles: readonly WrongStart[] = [
  {
    what: 'a certificate that is not there',
    options: https({ certFile: 'nowhere' }),
    said: [/certificate \S+\/nowhere cannot be read: there is no such file/],
  },
  {
    what: 'a certificate that is a directory',
    options: https({ certFile: '.' }),
    said: [/certificate \S+ cannot be read: it is a directory/],
  },
  {
    what: 'a certificate that is none',
    options: https({ certFile: 'token' }),
    said: [/certificate \S+\/token is not a PEM certificate/],
  },
  {
    what: 'a private key that is not there',
    options: https({ keyFile: 'nowhere' }),
    said: [/private key \S+\/nowhere cannot be read: there is no such file/],
  },
  {
    what: 'a private key that is none',
    options: https({ keyFile: 'cert' }),
    said: [/private key \S+\/cert is not a PEM private key/],
  },
  {
    what: 'the private key of another certificate',
    options: https({ keyFile: 'other-key' }),
    said: [/certificate \S+\/cert and the private key \S+\/other-key do not belong together/],
  },
  { what: 'a private key that everybody can read', options: https({ keyFile: 'open-key' }), said: [chmod] },
  {
    what: 'ticket keys of the wrong length',
    options: https({ ticketKeysFile: 'token' }),
    said: [/ticket keys \S+\/token has \d+ bytes; expected 48/],
  },
  {
    what: 'an authority of clients that is none',
    options: https({ clientCertificates: 'require', clientCaFile: 'token' }),
    said: [/CA certificate \S+\/token is not a PEM certificate/],
  },
  {
    what: 'a certificate that has expired',
    options: https({ certFile: 'expired-cert', keyFile: 'expired-key' }),
    goesOn: true,
    said: [/"level":"error".*clients reject the certificate: the certificate \S+\/expired-cert expired on \d{4}-/],
  },
  {
    what: 'a certificate that is not valid yet',
    options: https({ certFile: 'early-cert', keyFile: 'early-key' }),
    goesOn: true,
    said: [/"level":"error".*the certificate \S+\/early-cert is not valid before \d{4}-/],
  },
  {
    what: 'a certificate that ends within 14 days',
    options: https({ certFile: 'soon-cert', keyFile: 'soon-key' }),
    goesOn: true,
    said: [/"level":"warn".*the certificate \S+\/soon-cert expires on \d{4}-\S+: renew it/],
  },
  {
    what: 'a pepper that is not there',
    options: { keys: { pepperFile: 'nowhere' } },
    said: [/The pepper \S+\/nowhere cannot be read/],
  },
  {
    what: 'a pepper that is empty',
    options: { keys: { pepperFile: 'empty' } },
    said: [/The pepper \S+\/empty is shorter than 16 bytes/],
  },
  {
    what: 'a pepper with a byte order mark',
    options: { keys: { pepperFile: 'marked' } },
    said: [/begins with a byte order mark: save it as plain text/],
  },
  {
    what: 'a pepper with blank lines',
    options: { keys: { pepperFile: 'lines' } },
    said: [/ends with several line ends: leave at most one/],
  },
  { what: 'a pepper that everybody can read', options: { keys: { pepperFile: 'open' } }, said: [chmod] },
  {
    what: 'a pepper in place of its file',
    options: { keys: { pepperFile: '5'.repeat(64) } },
    said: [/looks like a secret, so it is not shown. Write the secret to a file/],
  },
  {
    what: 'a secret of the access log that is too short',
    options: { accessLog: { secretFile: 'empty' } },
    said: [/The secret of the access log \S+\/empty is shorter than 16 bytes/],
  },
  {
    what: 'an access log that is a directory',
    options: { accessLog: { destination: '.' } },
    said: [/The access log \S+ cannot be opened for appending: it is a directory; configure a file/],
  },
  {
    what: 'an access log below a file',
    options: { accessLog: { destination: 'token/access.log' } },
    said: [
      /The access log \S+token\/access\.log cannot be opened for appending: .*; configure a file that this user may write/,
    ],
  },
  {
    what: 'a signing key that is none',
    options: { identity: { signingKeyFile: 'token' } },
    said: [/The signing key \S+\/token is not a PEM private key/],
  },
  {
    what: 'a signing key of RSA',
    options: { identity: { signingKeyFile: 'rsa-key' } },
    said: [/must be an Ed25519 or a P-256 key/],
  },
  {
    what: 'a database of countries that is none',
    options: { geoip: { countryFile: 'token' } },
    said: [/The country database \S+\/token/],
  },
  {
    what: 'records that are no JSON',
    options: { keyStore: { memory: { recordsFile: 'token' } } },
    said: [/\S+\/token/],
  },
  {
    what: 'no records',
    options: { keyStore: { memory: { recordsFile: null } } },
    said: [/keyStore\.memory\.recordsFile: expected the path of a file for kind: memory/],
  },
  {
    what: 'an authority of an upstream that is not there',
    options: { upstreams: { a: { url: 'https://127.0.0.1:1', caFile: 'nowhere' } } },
    said: [/The CA certificate \S+\/nowhere cannot be read/],
  },
  {
    what: 'a token for traces that is not there',
    options: { traces: { endpoint: 'http://127.0.0.1:1/v1/traces', tokenFile: 'nowhere' } },
    said: [/The token for traces \S+\/nowhere cannot be read/],
  },
  {
    what: 'no TLS and no proxies',
    options: { listen: { https: null, http: { port: 0 } } },
    said: [
      /listen\.https: without a TLS listener and without trustedProxies the gateway would reject every request: expected/,
    ],
  },
  {
    what: 'workers that share standard output',
    options: { accessLog: { destination: 'stdout' } },
    args: ['--workers', '2'],
    said: [
      /accessLog\.destination: several worker processes cannot share standard output.*expected the path of a file/,
    ],
  },
].map((row): WrongStart => ({ part: 'gateway', ...row }) as WrongStart);
