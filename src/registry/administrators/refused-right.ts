import { Refusal } from '../../rest/refusal.js';

/** Thrown if the caller lacks a right; the response may have any status. The refused request is stored as an event. */
export class RefusedRight extends Refusal {
  /**
   * @param needs what the caller lacks, such as a permission
   * @param refusal the response
   */
  constructor(
    readonly needs: string,
    { statusCode, message, problems, code, details }: Refusal,
  ) {
    super(statusCode, message, problems, code, details);
  }
}
