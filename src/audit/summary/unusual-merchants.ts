import { type Count, ownText, Tally } from './tally.js';

/** A merchant with a much higher share of denied requests than all other merchants together. */
export interface UnusualMerchant {
  readonly merchant: string;
  readonly requests: number;
  readonly refused: number;
  /** The share of the merchant's requests that were denied, from 0 to 1. */
  readonly share: number;
  /** The denied share of the requests of all other merchants together, from 0 to 1. */
  readonly shareOfOthers: number;
  /** The three most frequent denial codes of the merchant. */
  readonly reasons: readonly Count[];
}

const fewest = 20;
const times = 3;
const mostMerchants = 20_000;
const mostReasons = 50;
const shown = 10;

/** Text on the summary page: explains which merchants the page lists as unusual. */
export const unusualRule = `A merchant is listed if it has at least ${fewest} refused requests, and if its share of refused requests is at least ${times} times the share of all other merchants together.`;

/** Counts the denial codes of each merchant. */
export class RefusalsOfMerchants {
  readonly #reasons = new Map<string, Tally>();
  /** Whether some merchants or codes were not counted, because the memory limit was reached. */
  isIncomplete = false;

  add(merchant: string, code: string, count: number): void {
    let reasons = this.#reasons.get(merchant);
    if (reasons === undefined) {
      if (this.#reasons.size >= mostMerchants) {
        this.isIncomplete = true;
        return;
      }
      this.#reasons.set(ownText(merchant), (reasons = new Tally(mostReasons)));
    }
    reasons.add(code, count);
    if (reasons.others > 0) this.isIncomplete = true;
  }

  /** Returns at most ten merchants to which `unusualRule` applies, those with the most denials first. */
  end(accepted: Tally, refused: Tally): UnusualMerchant[] {
    const all = { refused: refused.total, requests: accepted.total + refused.total };
    const found = [...this.#reasons].flatMap(([merchant, reasons]): UnusualMerchant[] => {
      const own = { refused: refused.count(merchant), requests: refused.count(merchant) + accepted.count(merchant) };
      const others = all.requests - own.requests;
      if (own.refused < fewest || others === 0) return [];
      const [share, shareOfOthers] = [own.refused / own.requests, (all.refused - own.refused) / others];
      return share < times * shareOfOthers ? [] : [{ merchant, ...own, share, shareOfOthers, reasons: reasons.top(3) }];
    });
    return found.toSorted((a, b) => b.refused - a.refused || (a.merchant < b.merchant ? -1 : 1)).slice(0, shown);
  }
}
