import Type, { Compile, type Static } from '../../typebox/typebox.js';
import { highestRevision } from './record-text.js';

const generation = Type.String({ minLength: 1, maxLength: 64 });
const beat = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
/** `maxStaleSeconds` may be a day. */
const lifetimeMilliseconds = Type.Integer({ minimum: 1, maximum: 86_401_000 });

const acknowledgementForm = Type.Object({
  instanceId: Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$' }),
  revision: Type.Integer({ minimum: 0, maximum: highestRevision }),
  environment: Type.Enum(['live', 'test']),
  host: Type.String({ maxLength: 255 }),
  /** ISO 8601. */
  startedAt: Type.String({ maxLength: 40 }),
  /** The history that the revision counts in. A gateway of an earlier release says none of what follows. */
  generation: Type.Optional(generation),
  /** Which of the gateway's beats this is; they are counted from 1. */
  beat: Type.Optional(beat),
  /** How long the gateway may use what it holds after it was last sure of its server, and a second. */
  lifetimeMilliseconds: Type.Optional(lifetimeMilliseconds),
  version: Type.Optional(Type.String({ maxLength: 64 })),
  /** The gateway's clock as it wrote this, in milliseconds since 1970: for people. */
  now: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
  /** The gateway has decided its last request. */
  leaving: Type.Optional(Type.Boolean()),
});

/** The most records that one part of a report has. */
export const recordsOfReport = 500;

const recordName = '^(key:[0-9a-f]{64}|merchant:[A-Za-z0-9_-]{1,64})$';

const reportForm = Type.Object({
  instanceId: Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$' }),
  generation,
  revision: Type.Integer({ minimum: 0, maximum: highestRevision }),
  entries: Type.Array(Type.Object({ name: Type.String({ pattern: recordName }), value: Type.Object({}) }), {
    maxItems: recordsOfReport,
  }),
});

const grantForm = Type.Object({
  ...{ generation, beat, lifetimeMilliseconds },
  /** Whether the registry knows that no record is missing. One of an earlier release does not say, and answers no question. */
  compared: Type.Optional(Type.Boolean()),
});

const answerForm = Type.Object({ generation, isPresent: Type.Boolean() });

/** What a gateway writes under `mg:ask:<instanceId>:<number>:<record>` to ask the registry for a record. */
export const asked = 'asked';

/** How long a question, and its answer in its place, stands. */
export const mostAskMilliseconds = 2_000;

/** What a gateway writes under `mg:gateway:<instanceId>` in each beat. */
export type Acknowledgement = Static<typeof acknowledgementForm>;

/**
 * What the registry writes under `mg:grant:<instanceId>`: the gateway is in its roster, in this generation, and the registry has
 * seen this beat of it.
 */
export type Grant = Static<typeof grantForm>;

/**
 * What a gateway writes under `mg:inactive:<instanceId>:<part>` when the store has lost what it remembers: the keys and merchants that
 * it holds as inactive, or as ending, and the change up to which it knew that history.
 */
export type InactiveReport = Static<typeof reportForm>;

/** What the registry writes in place of a question: whether it has such a record, which it has written again then. */
export type AskAnswer = Static<typeof answerForm>;

const checkAnswer = Compile(answerForm);
const checkReport = Compile(reportForm);
const checkAcknowledgement = Compile(acknowledgementForm);
const checkGrant = Compile(grantForm);

/** An acknowledgement as it is stored; null for what is none. */
export function readAcknowledgement(text: string | null): Acknowledgement | null {
  const value = parsed(text);
  return checkAcknowledgement.Check(value) ? value : null;
}

/** A grant as it is stored; null for what is none. */
export function readGrant(text: string | null): Grant | null {
  const value = parsed(text);
  return checkGrant.Check(value) ? value : null;
}

/** The text of an answer, unsealed. */
export function answerText(isPresent: boolean, generation: string): string {
  return JSON.stringify({ generation, isPresent } satisfies AskAnswer);
}

/** An answer as it is stored; null for what is none, such as the question. */
export function readAnswer(text: string): AskAnswer | null {
  const value = parsed(text);
  return checkAnswer.Check(value) ? value : null;
}

/** A report as it is stored; null for one that cannot be used. */
export function readReport(text: string | null): InactiveReport | null {
  const value = parsed(text);
  return checkReport.Check(value) ? value : null;
}

function parsed(text: string | null): unknown {
  try {
    return text === null ? null : JSON.parse(text);
  } catch {
    return null;
  }
}
