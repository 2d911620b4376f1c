import type { Rule, RuleProblem } from '../config-error.js';
import type { Config } from '../schema.js';
import { isLoopback } from './loopback.js';

/** Rules for the destinations of the access log and of its checkpoints. */
export const accessLogRules: readonly Rule[] = [
  destinationIsNotMisspelt,
  checkpointsHaveDestination,
  checkpointsHaveTheirOwnFile,
  checkpointUrlsAreUrls,
  syslogIsEncryptedBeyondLoopback,
  witnessKeyIsForReceipts,
];

const path = 'accessLog.checkpoints';
/** The form of a public key for receipts: its name, its id, and 33 bytes in Base64, of which the first is 0x04. */
const receiptKey = /^[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}\+[0-9a-f]{8}\+B[A-P][A-Za-z0-9+/]{42}$/;

/**
 * Rejects `stderr` and misspelt forms of `stdout`. Otherwise the log would go to a file of that name, unnoticed until
 * the disk is full.
 */
function destinationIsNotMisspelt({ accessLog: { destination } }: Config): RuleProblem[] {
  if (destination === 'stdout' || !/^\s*(?:stdout|stderr)\s*$/i.test(destination)) return [];
  return [
    {
      path: 'accessLog.destination',
      message: 'expected stdout (in lower case, without spaces) or the path of a file; stderr is not supported',
    },
  ];
}

function checkpointsHaveDestination({ accessLog: { checkpoints } }: Config): RuleProblem[] {
  if (checkpoints === null) return [];
  const { file, witness, https, syslog } = checkpoints;
  if ([file, witness, https, syslog].some((place) => place !== null)) return [];
  const message = 'have no destination; expected at least one of file, https, syslog and witness';
  return [{ path, message, others: ['file', 'https', 'syslog', 'witness'].map((place) => `${path}.${place}`) }];
}

function checkpointsHaveTheirOwnFile({ accessLog: { destination, checkpoints } }: Config): RuleProblem[] {
  if (checkpoints?.file !== destination) return [];
  return [
    { path: `${path}.file`, message: 'expected a file other than the log itself', others: ['accessLog.destination'] },
  ];
}

/** Rejects invalid checkpoint URLs at startup. Otherwise they would fail only at the first checkpoint. */
function checkpointUrlsAreUrls({ accessLog: { checkpoints } }: Config): RuleProblem[] {
  const problems: RuleProblem[] = [];
  const { https = null, syslog = null } = checkpoints ?? {};
  if (https !== null && !URL.canParse(https.url))
    problems.push({ path: `${path}.https.url`, message: 'expected a URL such as https://archive.example/checkpoints' });
  if (syslog !== null && !URL.canParse(syslog.url))
    problems.push({ path: `${path}.syslog.url`, message: 'expected a URL such as tls://logs.example:6514' });
  return problems;
}

/**
 * Requires TLS for syslog except on loopback, because an attacker on the network could replace plain-text checkpoints
 * undetected. Also rejects a CA file that has no effect without TLS.
 */
function syslogIsEncryptedBeyondLoopback({ accessLog: { checkpoints } }: Config): RuleProblem[] {
  const syslog = checkpoints?.syslog ?? null;
  if (syslog === null || !URL.canParse(syslog.url)) return [];
  const { protocol, hostname } = new URL(syslog.url);
  if (protocol === 'tcp:' && !isLoopback(hostname))
    return [
      {
        path: `${path}.syslog.url`,
        message: 'is the URL of another machine, which requires TLS; expected a tls:// URL',
      },
    ];
  if (protocol === 'tcp:' && syslog.caFile !== null)
    return [
      {
        path: `${path}.syslog.caFile`,
        message: 'applies only to tls://; expected null',
        others: [`${path}.syslog.url`],
      },
    ];
  return [];
}

/** Rejects a key with which no receipt can be verified, for example the public key of an instance. */
function witnessKeyIsForReceipts({ accessLog: { checkpoints } }: Config): RuleProblem[] {
  const publicKey = checkpoints?.witness?.publicKey ?? null;
  if (publicKey === null || receiptKey.test(publicKey)) return [];
  const message = 'is not a public key for receipts; copy the key that "merchant-gateway checkpoints head" prints';
  return [{ path: `${path}.witness.publicKey`, message }];
}
