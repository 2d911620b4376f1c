import { userInfo } from 'node:os';
import { actorForm } from '../../rest/actor.js';
import { WrongUsage } from './peer.js';

/**
 * Returns the name under which changes are recorded: the given name or, if no name is given, the system user's. In the
 * system user's name, invalid characters become hyphens. Null if the result is still invalid.
 * @throws WrongUsage if the given name is invalid
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
  throw new WrongUsage('--actor must be a name of 1 to 64 letters, digits and . _ @ : + -');
}

/** Returns the name of the system user; empty if the system does not know the uid of this process. */
function systemUser(): string {
  try {
    return userInfo().username;
  } catch {
    return '';
  }
}
