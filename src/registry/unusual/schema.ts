import { pagingQuery } from '../../rest/paging.js';
import Type, { type Static } from '../../typebox/typebox.js';
import { unusualRules } from '../../usage/unusual/finding.js';
import { identifierForm } from '../fields.js';
import { propagationSchema } from '../propagation-schema.js';

const moment = Type.String({ format: 'date-time' });
const textOrNull = Type.Union([Type.Null(), Type.String()]);
const identifier = (what: string) => Type.Optional(Type.String({ pattern: identifierForm, description: what }));
const ruleList = unusualRules.join(', ');

/**
 * The possible decisions about a finding. `fine`: the use is normal. `revoked`: the key is revoked. `look`: the use is
 * under investigation.
 */
export const findingDecisions = ['fine', 'revoked', 'look'] as const;

/** A finding: a detected case of unusual use of a key. */
export const unusualFindingSchema = Type.Object({
  id: Type.String(),
  keyId: Type.String(),
  merchantId: Type.String(),
  rule: Type.String({ description: `one of ${ruleList}` }),
  kind: Type.String({ description: 'the rule and, if the rule found a new value, that value, such as new-country:KE' }),
  foundAt: moment,
  /**
   * Time of the first request that shows the unusual use. Some usage counts have only the hour, so the time is
   * approximate.
   */
  seenAt: moment,
  message: Type.String(),
  address: textOrNull,
  country: textOrNull,
  asNumber: Type.Union([Type.Null(), Type.Integer()]),
  decision: Type.Union([Type.Null(), Type.String()], { description: `null, or one of ${findingDecisions.join(', ')}` }),
  decidedAt: Type.Union([Type.Null(), moment]),
  decidedBy: textOrNull,
});

/** A finding in the admin API. */
export type UnusualFinding = Static<typeof unusualFindingSchema>;

/** The query of `GET /unusual`. */
export const unusualQuery = Type.Object({
  ...pagingQuery.properties,
  merchantId: identifier('the id of a merchant'),
  keyId: identifier('the id of a key'),
  rule: Type.Optional(Type.Enum([...unusualRules], { type: 'string', description: `one of ${ruleList}` })),
  status: Type.Optional(
    Type.Enum(['open', 'answered'], {
      type: 'string',
      description:
        'open: findings without a decision, or with the decision look (under investigation); answered: all other findings',
    }),
  ),
});

/** The body of `POST /unusual/:id/answer`. */
export const decisionBody = Type.Object({
  answer: Type.Enum([...findingDecisions], { description: `one of ${findingDecisions.join(', ')}` }),
});

/**
 * The response of `POST /unusual/:id/answer`. After the decision `revoked`, `propagation` shows which gateways have
 * confirmed the revocation. After any other decision, `propagation` is null.
 */
export const decidedSchema = Type.Object({
  ...unusualFindingSchema.properties,
  propagation: Type.Union([Type.Null(), propagationSchema]),
});

/** A rule. `isOff` is the reason why the rule is off; null if the rule is on. */
export const ruleStateSchema = Type.Object({ rule: Type.String(), isOff: textOrNull });

/** A webhook message that its target has not accepted. */
export const undeliveredSchema = Type.Object({
  id: Type.String(),
  /** Host of the target; null if the target is no longer configured. */
  target: textOrNull,
  createdAt: moment,
  attempts: Type.Integer(),
  /** When the next attempt follows; null if the message was given up. */
  nextAt: Type.Union([Type.Null(), moment]),
  givenUpAt: Type.Union([Type.Null(), moment]),
  problem: textOrNull,
});

/** An undelivered webhook message in the admin API. */
export type UndeliveredWebhook = Static<typeof undeliveredSchema>;
