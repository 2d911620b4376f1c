/** A problem with one field of a request. */
export interface FieldProblem {
  readonly path: string;
  readonly message: string;
}

/** Pagination data of a list. */
export interface Meta {
  readonly total_records: number;
  readonly current_page: number;
  readonly total_pages: number;
}

/** A success response of the admin API. */
export interface Success<Data> {
  readonly status: number;
  readonly data: Data;
  readonly meta: Meta | null;
}

/** Why a request failed. `status` is the HTTP status, or 0 if there was no complete response. */
export class ApiProblem extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly code: string | null,
    readonly errors: readonly FieldProblem[],
    readonly details: Readonly<Record<string, unknown>> = {},
    /** Whether the change may have been made although no success response confirms it. */
    readonly isUnclear = false,
  ) {
    super(message);
  }

  /** Returns the message about a field; undefined without a message. */
  about(field: string): string | undefined {
    return this.errors.find(({ path }) => path === field || path.startsWith(`${field}.`))?.message;
  }
}

type Query = Readonly<Record<string, string | number | undefined>>;

/** A request to the admin API. */
interface Call {
  readonly method?: 'GET' | 'POST' | 'PATCH' | 'DELETE';
  readonly query?: Query;
  readonly body?: object;
  /** The reason that the person gives for the change. The audit trail records this reason. */
  readonly reason?: string | undefined;
  /** Cancels a GET. A change, or a GET without a signal, cannot be cancelled, but has a time limit. */
  readonly signal?: AbortSignal | undefined;
}

interface Envelope {
  readonly success?: boolean;
  readonly message?: string;
  readonly data?: unknown;
  readonly meta?: Meta;
}

/** After this time without input, requests count as automatic and no longer extend the session. */
const attendedMilliseconds = 60_000;
/** After this time without a response, the page no longer waits for a request that cannot be cancelled. */
const limitMilliseconds = 30_000;
let lastInput = Date.now();
for (const event of ['pointerdown', 'keydown'])
  addEventListener(event, () => (lastInput = Date.now()), { capture: true, passive: true });

/** Sends a request to the admin API with the session of this browser. @throws ApiProblem */
export async function call<Data>(
  path: string,
  { method = 'GET', query = {}, body, reason, signal }: Call = {},
): Promise<Success<Data>> {
  const given = Object.entries(query).flatMap(([name, value]) => (value === undefined ? [] : [[name, String(value)]]));
  const search = given.length === 0 ? '' : `?${new URLSearchParams(given)}`;
  const isChange = method !== 'GET';
  let response: Response;
  try {
    response = await fetch(`/console/api${path}${search}`, {
      ...{ method, cache: 'no-store', credentials: 'same-origin' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      headers: {
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        // Encode the reason, because HTTP headers carry only ASCII reliably.
        ...(reason === undefined ? {} : { 'x-reason': encodeURIComponent(reason) }),
        // This header marks automatic requests. Otherwise the polls of a page that a person left open would keep the
        // session open.
        ...(Date.now() - lastInput < attendedMilliseconds ? {} : { 'x-unattended': 'yes' }),
      },
      // Without a limit, a lost connection would keep a dialog open or a button disabled for good.
      signal: isChange || signal === undefined ? AbortSignal.timeout(limitMilliseconds) : signal,
    });
  } catch (error) {
    if (signal?.aborted === true) throw error;
    throw new ApiProblem(0, '', null, [], {}, isChange);
  }
  const envelope = (await response.json().catch(() => ({}))) as Envelope;
  if (response.ok && envelope.success === true) {
    return { status: response.status, data: envelope.data as Data, meta: envelope.meta ?? null };
  }
  const { code, errors, ...details } = (envelope.data ?? {}) as Record<string, unknown>;
  // A success response whose body is incomplete does not count as a response.
  const status = response.ok ? 0 : response.status;
  throw new ApiProblem(
    status,
    envelope.message ?? '',
    typeof code === 'string' ? code : null,
    Array.isArray(errors) ? (errors as FieldProblem[]) : [],
    details,
    isChange && (status === 0 || status >= 500),
  );
}

/** Who is signed in, from `GET /me`. */
export interface Me {
  readonly name: string;
  readonly roles: readonly string[];
  readonly permissions: readonly string[];
  readonly merchantId: string | null;
  /** The client address of this browser, as the registry sees it; null or absent if unknown. */
  readonly address?: string | null;
  readonly merchantApi?: {
    readonly liveUrl: string | null;
    readonly testUrl: string | null;
    readonly caFile: string | null;
  };
  readonly administratorId: string | null;
  readonly hasSignIn: boolean;
  /** Whether the registry forwards requests about wallets to the services. */
  readonly hasWallets?: boolean;
  readonly session: {
    readonly id: string;
    readonly provenUntil: string | null;
  } | null;
}

/** How many gateways have confirmed a change, and which have not. */
export interface Propagation {
  readonly gateways: number | null;
  readonly confirmed: number;
  readonly pending: readonly {
    readonly instanceId: string;
    readonly host: string;
    readonly staleUntil: string | null;
  }[];
  readonly milliseconds: number;
  readonly projected?: false;
}

/** The record of an API key. It does not contain the key itself. */
export interface ApiKey {
  readonly keyId: string;
  readonly merchantId: string;
  readonly environment: 'live' | 'test';
  readonly prefix: string;
  readonly status: string;
  readonly permissions: readonly string[];
  readonly label: string | null;
  readonly expiresAt: string | null;
  readonly createdAt: string;
  readonly statusChangedAt?: string | null;
  readonly createdBy?: string | null;
  readonly lastUse?: { readonly at: string; readonly address: string; readonly country: string | null } | null;
}

/** A new API key. Only the response to its creation contains the key itself. */
export interface CreatedKey extends ApiKey {
  readonly key: string;
  readonly propagation: Propagation;
}

/** A merchant. */
export interface Merchant {
  readonly id: string;
  readonly name: string;
  readonly status: string;
  readonly goLive: boolean;
  readonly ipAllowlist: readonly string[] | null;
  readonly originAllowlist: readonly string[] | null;
  readonly revision: number;
  readonly createdAt: string;
  readonly counts?: { readonly keys: number; readonly requests: number; readonly refused: number } | null;
}

/** An event of the audit trail. */
export interface RegistryEvent {
  readonly seq: number;
  readonly at: string;
  readonly actor: string;
  readonly action: string;
  readonly merchantId: string;
  readonly keyId: string | null;
  readonly before: object | null;
  readonly after: object | null;
  readonly source?: string | null;
  readonly proof?: string | null;
  readonly reason?: string | null;
}

/** A refused request, with the reason and a remedy. */
export interface Refused {
  readonly id: number;
  readonly at: string;
  readonly environment: string;
  readonly code: string;
  readonly status: number;
  readonly message: string | null;
  readonly meaning: string | null;
  readonly remedy: string | null;
  readonly method: string;
  readonly path: string;
  readonly address: string | null;
  readonly keyId: string | null;
  readonly requestId: string;
}

/** The requests of one day or hour. */
export interface UsageRow {
  readonly from: string | null;
  readonly requests: number;
  readonly accepted: number;
  readonly refused: number;
  readonly codes: readonly { readonly code: string; readonly requests: number }[];
}

/** How many accepted requests of a merchant an IP allowlist would have refused, and from which addresses. */
export interface Verdict {
  readonly requests: number;
  readonly refused: { readonly requests: number; readonly addresses: number };
  readonly uncertain: number;
  readonly entries?: readonly {
    readonly entry: string;
    readonly addresses: string;
    readonly concern: string | null;
  }[];
  readonly addresses: readonly {
    readonly address: string;
    readonly country: string | null;
    readonly requests: number;
  }[];
}

/** The requests from one address on one day. `address` is null in the row that sums up all further addresses. */
export interface SeenAddress {
  readonly address: string | null;
  readonly accepted: number;
}

/** A session of the console. */
export interface ConsoleSession {
  readonly id: string;
  readonly createdAt: string;
  readonly lastSeenAt: string;
  readonly expiresAt: string;
  readonly source: string;
  readonly browser: string;
  readonly isCurrent: boolean;
}
