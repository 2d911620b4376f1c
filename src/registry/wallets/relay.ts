import type { FastifyRequest } from 'fastify';
import { parseStrictJson, StrictJsonError } from '../../json/strict-json.js';
import { Refusal } from '../../rest/refusal.js';
import Type, { Check, type Static } from '../../typebox/typebox.js';
import { authorOf, callerOf } from '../administrators/request-author.js';
import type { RegistryContext } from '../registry-context.js';
import { type ServicesTokenSigner, servicesTokenFor } from '../services-tokens/token-for.js';

/** A request to the operators' API of the services. */
interface OperatorsRequest {
  readonly method: 'GET' | 'POST';
  /** Path and query. */
  readonly path: string;
  /** A services token: a JWT by which the services recognise the administrator. */
  readonly token: string;
  /** The reason that the caller gave, percent-encoded; null if the caller gave no reason. */
  readonly reason: string | null;
  /** The body as JSON; null for a request without a body. */
  readonly body: string | null;
}

/**
 * The response of the operators' API. `text` is its body, or null if the body is too large. If no response arrived,
 * `problem` tells an operator the reason.
 */
type OperatorsResponse = { readonly status: number; readonly text: string | null } | { readonly problem: string };

/** A client of the operators' API of the services. */
export interface OperatorsApi {
  /** Sends a request. Never rejects. */
  send(request: OperatorsRequest): Promise<OperatorsResponse>;
}

/** Dependencies of WalletRelay. */
export interface RelayOptions extends ServicesTokenSigner {
  readonly operatorsApi: OperatorsApi;
}

/** A request of the console that is relayed to the services. */
interface Relayed {
  /** The validated segments of the path below `/wallets`. */
  readonly path: readonly string[];
  readonly query?: Readonly<Record<string, string | undefined>>;
  readonly body?: object;
  readonly approvalId?: string | undefined;
  /**
   * Whether the request moves money. Such a request has a reference, and the services move money only once for each
   * reference.
   */
  readonly isMovement?: true;
}

const meta = Type.Object({
  ...{ total_records: Type.Integer(), current_page: Type.Integer() },
  ...{ total_pages: Type.Integer(), per_page: Type.Integer() },
});
const successEnvelope = Type.Object({
  ...{ success: Type.Literal(true), message: Type.String(), meta: Type.Optional(meta) },
  data: Type.Union([Type.Object({}), Type.Array(Type.Object({}))]),
});
const failureEnvelope = Type.Object({
  ...{ success: Type.Literal(false), message: Type.String() },
  data: Type.Object({
    code: Type.String(),
    permission: Type.Optional(Type.String()),
    errors: Type.Array(Type.Object({ path: Type.String(), message: Type.String() })),
  }),
});

const successes: ReadonlySet<number> = new Set([200, 201]);
/** Statuses of errors that the user's request has caused. A response with such a status is passed on to the user. */
const refusals: ReadonlySet<number> = new Set([400, 403, 404, 409, 422]);
/** Error codes whose cause is a misconfigured connection between registry and services, not the user's request. */
const codesOfConnection: ReadonlySet<string> = new Set(['route_not_found', 'forwarded']);

/**
 * Relays requests of the console to the operators' API of the services. Signs a token for the caller of each request.
 */
export class WalletRelay {
  readonly #context: RegistryContext;
  readonly #options: RelayOptions;

  constructor(context: RegistryContext, options: RelayOptions) {
    this.#context = context;
    this.#options = options;
  }

  /**
   * Sends a request to the services, without the cookie and the headers of the browser.
   * @throws Refusal if the services refused the request, or sent no valid response
   */
  async send(request: FastifyRequest, relayed: Relayed): Promise<{ status: number; body: SuccessBody }> {
    const { path, query = {}, body, approvalId } = relayed;
    const { reason, source } = authorOf(request);
    // Removes the list of addresses from which the credential is valid. The registry has checked the client's address.
    // The services see only the registry's address, which need not be on the list. For their events, the token contains
    // the client's address.
    const caller = { ...callerOf(request), sources: null };
    const use = { approvalId, clientAddress: source };
    const { token } = await servicesTokenFor(this.#context, this.#options, caller, use);
    const given = Object.entries(query).filter((one): one is [string, string] => one[1] !== undefined);
    const search = given.length === 0 ? '' : `?${new URLSearchParams(given).toString()}`;
    const response = await this.#options.operatorsApi.send({
      method: body === undefined ? 'GET' : 'POST',
      path: `${['/wallets', ...path].join('/')}${search}`,
      token,
      reason: reason === null ? null : encodeURIComponent(reason),
      body: body === undefined ? null : JSON.stringify(body),
    });
    if ('problem' in response) throw unavailable(response.problem, relayed);
    return checked(response, relayed);
  }
}

type SuccessBody = Static<typeof successEnvelope>;

/** Returns the response of the services if it is a success. @throws Refusal otherwise */
function checked(
  { status, text }: { readonly status: number; readonly text: string | null },
  relayed: Relayed,
): { status: number; body: SuccessBody } {
  if (text === null) throw unexpected('is too large', relayed);
  if (status === 401) {
    const message =
      "The services do not accept the registry's tokens: check that services.operators.registryKeys has the public " +
      'key that belongs to registry.servicesToken.keyFile, and that the clocks of both processes agree';
    throw new Refusal(502, message, [], 'services_token_refused');
  }
  const body = jsonIn(text);
  if (successes.has(status) && Check(successEnvelope, body)) {
    const { message, data } = body;
    return { status, body: { success: true, message, data, ...(body.meta === undefined ? {} : { meta: body.meta }) } };
  }
  if (!Check(failureEnvelope, body)) throw unexpected('is not in the format of their API', relayed);
  const { code, permission, errors } = body.data;
  if (status >= 500) throw unavailable(`status ${status}`, relayed);
  if (!refusals.has(status) || codesOfConnection.has(code)) throw unexpected(`has status ${status}`, relayed);
  throw new Refusal(status, body.message, errors, code, permission === undefined ? {} : { permission });
}

/** Returns the value of a JSON text; undefined if the text is no JSON. */
function jsonIn(text: string): unknown {
  try {
    return parseStrictJson(text);
  } catch (error) {
    if (error instanceof StrictJsonError) return undefined;
    throw error;
  }
}

const ifUnclear =
  'The money may have been moved. Send the same request again: with the same reference, the money moves only once';

function unavailable(problem: string, { isMovement }: Relayed): Refusal {
  const message = `The services are unavailable (${problem}): check that they run, and that registry.console.services is correct`;
  const next = isMovement === true ? ifUnclear : 'Then try again';
  return new Refusal(503, `${message}. ${next}`, [], 'services_unavailable');
}

function unexpected(problem: string, { isMovement }: Relayed): Refusal {
  const message = `The response of the services ${problem}: check registry.console.services.url`;
  return new Refusal(502, isMovement === true ? `${message}. ${ifUnclear}` : message, [], 'services_unexpected');
}
