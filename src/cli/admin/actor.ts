import { userInfo } from 'node:os';
import { actorForm } from '../../rest/actor.js';
import { WrongUsage } from './peer.js';

/**
 * Returns the name that a command sends in `x-actor`: `given`, or the name of the system user if `given` is undefined.
 * In the name of the system user, invalid characters become hyphens. Null if that name is still invalid.
 * @throws WrongUsage if `given` is invalid
 */
export function actorNamed(given: string | undefined, user: () => string = systemUser): string | null {
  if (given === undefined) {
    const name = user()
      .replaceAll(/[^A-Za-z0-9._@:+-]+/g, '-')
      .replace(/^[^A-Za-z0-9]+/, '')
      .slice(0, 64);
    return actorForm.test(name) ? name : null;
  }
  if (actorForm.test(given)) return given;
  throw new WrongUsage(
    '--actor must begin with a letter or a digit, consist of 1 to 64 letters, digits and . _ @ : + -, and contain no API key',
  );
}

/** Returns the name of the system user; empty if the system does not know the uid of this process. */
function systemUser(): string {
  try {
    return userInfo().username;
  } catch {
    return '';
  }
}
