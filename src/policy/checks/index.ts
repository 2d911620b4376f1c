import type { CredentialChecks, RequestChecks } from './check.js';
import { httpsRequired } from './https-required.js';
import { ipNotAllowed } from './ip-not-allowed.js';
import { keyFormat } from './key-format.js';
import { keyInactive } from './key-inactive.js';
import { keyRequired } from './key-required.js';
import { keyUnknown } from './key-unknown.js';
import { liveKeyInTest } from './live-key-in-test.js';
import { merchantInactive } from './merchant-inactive.js';
import { merchantNotLive } from './merchant-not-live.js';
import { originNotAllowed } from './origin-not-allowed.js';
import { permissionDenied } from './permission-denied.js';
import { testKeyInLive } from './test-key-in-live.js';
import { torBlocked } from './tor-blocked.js';

/** What is asked of every request before its key is looked up, in this order. */
export const requestChecks: RequestChecks = [
  httpsRequired,
  torBlocked,
  keyRequired,
  keyFormat,
  testKeyInLive,
  liveKeyInTest,
];

/** What is asked once the key has been looked up, in this order. */
export const credentialChecks: CredentialChecks = [
  keyUnknown,
  keyInactive,
  merchantInactive,
  merchantNotLive,
  ipNotAllowed,
  originNotAllowed,
  permissionDenied,
];
