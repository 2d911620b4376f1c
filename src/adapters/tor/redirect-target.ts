import { ExitListRefused } from './exit-list-refused.js';

/**
 * Where a redirect leads: to http or https, never with a user, and from https to https alone, because on a plain
 * connection anybody on the way could write the list.
 * @throws ExitListRefused
 */
export function redirectTarget(from: URL, location: string | string[] | undefined): URL {
  if (typeof location !== 'string' || !URL.canParse(location, from.href)) {
    throw new ExitListRefused('bad_answer', 'its server redirects to no address');
  }
  const target = new URL(location, from);
  const secure = target.protocol === 'https:';
  if (!secure && (from.protocol === 'https:' || target.protocol !== 'http:')) {
    throw new ExitListRefused('bad_answer', 'its server redirects away from https');
  }
  if (target.username !== '' || target.password !== '') {
    throw new ExitListRefused('bad_answer', 'its server redirects to an address with a user');
  }
  return target;
}
