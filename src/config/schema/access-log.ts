import Type from '../../typebox/typebox.js';
import { line, nullable, optionalFile, requiredFile, section } from './option.js';

/**
 * Pattern for the name of a signer in signed notes, such as checkpoints. The id of a run (the log of one gateway
 * process) is appended to this name. The pattern limits the length, so that both together have at most 200 characters.
 */
export const noteName = '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,172}$';

const witness = section(
  {
    registerSeconds: Type.Integer({
      minimum: 0,
      maximum: 60,
      default: 2,
      description:
        'Maximum time that a starting gateway waits for the first receipt of the registry before it accepts requests.',
    }),
    required: Type.Boolean({
      default: false,
      description:
        'true: the gateway is not ready until it has received a receipt from the registry since its start. false: it only warns.',
    }),
    publicKey: nullable(line({ expects: 'a public key as "merchant-gateway checkpoints head" prints it' }), {
      description:
        'The public key that verifies receipts. null: each process trusts the key that comes with its first receipt. An attacker who has the secret of keys.recordSecretFile could forge that receipt.',
    }),
  },
  { description: '' },
);

const https = section(
  {
    url: Type.String({
      pattern: '^https://[^?#@\\s\\\\\\u0000-\\u001f\\u007f]+$',
      maxLength: 4096,
      expects: 'an https:// URL without a user or a query',
      description: 'URL to which checkpoints are posted as {"note":"…"}. A post is retried until the response is 2xx.',
      examples: ['https://archive.example.com/checkpoints'],
    }),
    tokenFile: optionalFile(
      'File with the token for the endpoint, sent as authorization: Bearer. null: no token is sent.',
    ),
    caFile: optionalFile(
      'PEM file of the CA of the endpoint. null: the CAs that Node includes, and those in the file of NODE_EXTRA_CA_CERTS.',
    ),
  },
  { description: '' },
);

const syslog = section(
  {
    url: Type.String({
      pattern: '^(?:tls|tcp)://[^?#@/\\s\\\\\\u0000-\\u001f\\u007f]+$',
      maxLength: 300,
      expects: 'tls://host:port, or tcp:// for a server on this machine',
      description:
        'URL of the server: tls:// (RFC 5425, default port 6514), or tcp:// (default port 601) for a forwarder on ' +
        'this machine.',
      examples: ['tls://logs.example.com:6514'],
    }),
    caFile: optionalFile(
      'PEM file of the CA of the server. null: the CAs that Node includes, and those in the file of NODE_EXTRA_CA_CERTS.',
    ),
  },
  { description: '' },
);

const checkpoints = section(
  {
    name: Type.String({
      pattern: noteName,
      default: 'merchant-gateway',
      description:
        'Name of the signer in each checkpoint and in the public key. The signer is this gateway, or all replicas that share keyFile.',
      expects:
        'at most 173 letters, digits and . _ : / -, beginning with a letter or digit, such as gateway.example.com/live',
    }),
    keyFile: requiredFile(
      'PEM file with the Ed25519 private key that signs checkpoints. If the file is missing, the gateway creates it when it starts.',
      '/var/lib/merchant-gateway/instance-key.pem',
    ),
    file: optionalFile(
      'File to which checkpoints are appended, one JSON object per line. Put it on another machine, or on ' +
        'append-only storage. Processes may share it. null: no file; then https, syslog or witness must be set.',
      '/var/lib/merchant-gateway/checkpoints.jsonl',
    ),
    https: nullable(https, {
      description: 'An HTTPS endpoint that stores checkpoints, such as an append-only archive. null: no endpoint.',
    }),
    syslog: nullable(syslog, {
      description:
        'A syslog server that stores checkpoints, as RFC 5424 messages. Syslog has no acknowledgements, so a checkpoint can be lost; the next one covers the same lines. null: no syslog server.',
    }),
    everySeconds: Type.Integer({
      minimum: 1,
      maximum: 3600,
      default: 10,
      description:
        'Seconds between checkpoints. An attacker can remove the lines after the newest checkpoint without detection.',
    }),
    witness: nullable(witness, {
      description:
        'The gateway sends each checkpoint over Redis to the registry (registry.witness). The registry checks that no earlier line was removed, stores the checkpoint and signs a receipt. Requires keys.recordSecretFile. null: no receipts.',
    }),
  },
  { description: '' },
);

/** Options of the access log. */
export const accessLog = section(
  {
    destination: line({
      default: 'stdout',
      description: 'Destination of the log: stdout, or the path of a file.',
      expects: 'stdout or the path of a file',
      holds: 'destination',
    }),
    secretFile: optionalFile(
      'File with a secret of at least 16 random bytes, for the HMAC chain over the lines and for the fingerprints of API keys. The chain detects changed lines. null: the chain detects only accidental damage, and the log has no fingerprints.',
    ),
    checkpoints: nullable(checkpoints, {
      description:
        'The gateway regularly signs a checkpoint, which proves what the log contained at that time. The log can then be verified with only a public key. Deleting a log file does not affect the verification of the other files. null: no checkpoints; the lines are chained with secretFile.',
    }),
    onFailure: Type.Enum(['refuse', 'continue'], {
      default: 'refuse',
      description:
        'What the gateway does while log lines cannot be written. refuse: it is not ready and responds 503, so that ' +
        'every forwarded request is logged. continue: it forwards requests and counts the lost lines.',
    }),
    reserveBytes: Type.Integer({
      minimum: 0,
      maximum: 1_125_899_906_842_624,
      default: 268_435_456,
      description:
        'Disk space that is reserved for lines about accepted requests, and about rejected requests with known keys. ' +
        'While the disk of the log file has less free space than this, all other requests share one line per second. ' +
        '0: no reserve. The option has no effect if destination is stdout.',
    }),
  },
  {
    description:
      'The access log: one JSON line per request, accepted or rejected. Exception: the requests without a known key ' +
      'from a throttled source are combined into at most one line per second, which contains their count.',
  },
);
