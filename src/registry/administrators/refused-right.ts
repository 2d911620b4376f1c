import { Refusal } from '../../rest/refusal.js';

/**
 * Thrown if the caller lacks a right. The refused request is stored as an event. The response can have any status, for
 * example 404 to hide that a record exists.
 */
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
