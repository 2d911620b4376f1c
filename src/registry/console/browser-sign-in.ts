import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { countedSource } from '../../rest/counted-source.js';
import Type, { Check } from '../../typebox/typebox.js';
import { recordFailure } from '../administrators/access.js';
import type { Attempts } from '../administrators/attempts.js';
import { unknownAuthor } from '../administrators/request-author.js';
import { digestOf } from '../administrators/token-text.js';
import { makeUnpublishedChange } from '../change.js';
import { newId, type RegistryContext } from '../registry-context.js';
import { accountOf } from '../sign-in/account.js';
import { type BrowserSecrets, type IdentityProvider, ProviderError } from '../sign-in/provider.js';
import { SecretSeal } from '../sign-in/seal.js';
import { clearSignIn, secretIn, sessionCookie, setSession, setSignIn, signInCookie } from './cookies.js';
import { browserOf, newSecret, openSession, sessionIdOf } from './sessions.js';

const callbackPath = '/console/sign-in/callback';
const longestSeconds = 10 * 60;
/** Maximum number of sign-ins from one IP address, or one IPv6 /64, that wait for the person's return. */
const mostOfSource = 50;
/** Maximum number of sign-ins from all addresses together that wait for the person's return from the provider. */
const mostPending = 10_000;
/** How far the provider's clock is allowed to be behind the clock of this machine, in milliseconds. */
const skewMilliseconds = 60_000;

/** The reason why a sign-in opened no session. The redirect to `/console/` contains it, and the console explains it. */
type Failure = 'denied' | 'failed' | 'unavailable' | 'too-many' | 'no-provider' | 'not-proven';

/**
 * The data of a sign-in that the registry needs when the person returns from the provider. The database stores these
 * data encrypted.
 */
const kept = Type.Object({
  ...{ state: Type.String(), nonce: Type.String(), verifier: Type.String() },
  /** The path to which the browser goes after the sign-in. */
  to: Type.String(),
  isProof: Type.Boolean(),
});

/** Dependencies of the sign-in with a browser. */
interface SignInOptions {
  readonly context: RegistryContext;
  readonly attempts: Attempts;
  /** The OpenID provider; null if no provider is configured. */
  readonly provider: IdentityProvider | null;
  /** Returns the origin of the console. URLs must use this origin: an attacker can choose the Host header. */
  readonly origin: () => string;
}

const startQuery = Type.Object({
  prove: Type.Optional(Type.Literal('yes')),
  to: Type.Optional(Type.String({ maxLength: 500, pattern: /^\/console\/[\x21-\x7e]*$/ })),
});

/**
 * Adds the sign-in at the OpenID provider: `/console/sign-in` sends the browser to the provider, which sends the
 * browser back to `/console/sign-in/callback`. A cookie binds the sign-in to this browser, for ten minutes and for one
 * use. Without the cookie, a victim's browser could complete a sign-in that an attacker began, and would get the
 * attacker's session.
 */
export function addBrowserSignIn(app: FastifyInstance, options: SignInOptions): void {
  const { provider } = options;
  const seal = provider && new SecretSeal(provider.options.clientSecret, options.context.random);
  const signIn = provider && seal && new BrowserSignIn({ ...options, provider, seal });
  app.get('/console/sign-in', async (request, reply) => {
    const query = Check(startQuery, request.query) ? request.query : {};
    return signIn === null ? leave(reply, 'no-provider') : signIn.start(request, reply, query);
  });
  app.get(callbackPath, async (request, reply) =>
    signIn === null ? leave(reply, 'no-provider') : signIn.finish(request, reply),
  );
}

interface WithProvider extends SignInOptions {
  readonly provider: IdentityProvider;
  readonly seal: SecretSeal;
}

/** The secret of the session that a sign-in opened, or the reason why it opened no session. */
type Opened = { readonly secret: string } | { readonly cause: string };

class BrowserSignIn {
  readonly #options: WithProvider;

  constructor(options: WithProvider) {
    this.#options = options;
  }

  async start(
    request: FastifyRequest,
    reply: FastifyReply,
    { prove, to = '/console/' }: { readonly prove?: string; readonly to?: string },
  ): Promise<FastifyReply> {
    const { context, provider, seal, origin, attempts } = this.#options;
    const { database, clock, random } = context;
    const now = clock.now();
    const author = unknownAuthor(request);
    const source = countedSource(author.source ?? '');
    await database.deleteFrom('console_sign_ins').where('expires_at', '<', now).execute();
    if (!(await this.#hasRoom(source))) {
      attempts.refused('too_many_attempts', author);
      return leave(reply, 'too-many');
    }
    const secrets: BrowserSecrets = { state: newSecret(random), nonce: newSecret(random), verifier: newSecret(random) };
    const isProof = prove === 'yes';
    let url: string;
    try {
      url = await provider.browserUrl(`${origin()}${callbackPath}`, secrets, isProof);
    } catch (error) {
      if (error instanceof ProviderError) return leave(reply, 'unavailable');
      throw error;
    }
    const [secret, id] = [newSecret(random), newId('csi', now, random)];
    await database
      .insertInto('console_sign_ins')
      .values({
        ...{ id, digest: digestOf(secret), sealed: seal.seal(JSON.stringify({ ...secrets, to, isProof }), id) },
        session_id: await sessionIdOf(database, secretIn(request, sessionCookie)),
        ...{ source, created_at: now, expires_at: now + longestSeconds * 1000 },
      })
      .execute();
    return reply.header('set-cookie', setSignIn(secret, longestSeconds)).headers(notKept).redirect(url);
  }

  async finish(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const { context, provider, attempts, origin } = this.#options;
    reply.header('set-cookie', clearSignIn);
    const begun = await this.#take(request);
    if (begun === null) {
      await recordFailure({ cause: 'unknown-sign-in' }, request, reply, attempts);
      return leave(reply, 'failed');
    }
    const { id, startedAt, replaces, secrets } = begun;
    let verified: Awaited<ReturnType<IdentityProvider['redeemCode']>>;
    try {
      verified = await provider.redeemCode(new URL(request.url, origin()), secrets);
    } catch (error) {
      if (!(error instanceof ProviderError)) throw error;
      if (error.kind === 'unavailable') return leave(reply, 'unavailable');
      await recordFailure({ cause: error.reason, signInId: id }, request, reply, attempts);
      return leave(reply, error.reason === 'access_denied' ? 'denied' : 'failed');
    }
    const { claims, provenAt } = verified;
    // The provider might have ignored the demand to authenticate the person again.
    if (secrets.isProof && (provenAt === null || provenAt < startedAt - skewMilliseconds)) {
      await recordFailure({ cause: 'not-proven', signInId: id }, request, reply, attempts);
      return leave(reply, 'not-proven');
    }
    const author = unknownAuthor(request);
    const from = { source: author.source ?? '', browser: browserOf(request), replaces };
    const { random } = context;
    const opened = await makeUnpublishedChange<Opened>(context, author, async (change) => {
      const account = await accountOf(change, random, claims, provider.options.rules, null);
      if ('result' in account) return account;
      const { name, roles, id: administratorId, merchantId, issuer, subject } = account.administrator;
      const session = await openSession(
        change.transaction,
        random,
        {
          ...{ administrator_id: administratorId, roles: null, sources: null, issued_by: null, issuers: null },
          ...{ token_id: null, sign_in_id: null, proven_at: provenAt, proven_by: 'oidc', endsAt: null },
        },
        { ...from, now: change.now },
      );
      const after = { sessionId: session.id, administratorId, name, roles, issuer, subject, isProof: secrets.isProof };
      const succeeded = { action: 'sign-in.succeeded', keyId: null, before: null, after } as const;
      return {
        result: { secret: session.secret },
        events: [...account.events, { ...succeeded, merchantId: merchantId ?? '' }],
        provenAuthor: { ...author, actor: name, administratorId, proof: `session:${session.id}` },
      };
    });
    if ('cause' in opened) {
      const { iss: issuer, sub: subject } = claims;
      await recordFailure({ cause: opened.cause, signInId: id, issuer, subject }, request, reply, attempts);
      return leave(reply, opened.cause === 'disabled' ? 'denied' : 'failed');
    }
    return reply.header('set-cookie', setSession(opened.secret)).headers(notKept).redirect(secrets.to);
  }

  /**
   * Returns the stored sign-in to which the browser's cookie belongs. Deletes the sign-in, so that the cookie works
   * only once. Null if the cookie belongs to no stored sign-in, or if the sign-in has expired or cannot be decrypted.
   */
  async #take(request: FastifyRequest) {
    const { context, seal } = this.#options;
    const { database, clock } = context;
    const found = secretIn(request, signInCookie);
    if (found === null || found === 'malformed') return null;
    const row = await database
      .deleteFrom('console_sign_ins')
      .where('digest', '=', digestOf(found.secret))
      .returningAll()
      .executeTakeFirst();
    if (row === undefined || row.expires_at <= clock.now()) return null;
    const text = seal.open(row.sealed, row.id);
    const secrets: unknown = text === null ? null : JSON.parse(text);
    if (!Check(kept, secrets)) return null;
    return { id: row.id, startedAt: row.created_at, replaces: row.session_id, secrets };
  }

  async #hasRoom(source: string): Promise<boolean> {
    const { total, own } = await this.#options.context.database
      .selectFrom('console_sign_ins')
      .select((it) => [
        it.fn.countAll<number>().as('total'),
        it.fn.countAll<number>().filterWhere('source', '=', source).as('own'),
      ])
      .executeTakeFirstOrThrow();
    return total < mostPending && own < mostOfSource;
  }
}

const notKept = { 'cache-control': 'no-store' };

function leave(reply: FastifyReply, failure: Failure): FastifyReply {
  return reply.headers(notKept).redirect(`/console/?sign-in=${failure}`);
}
