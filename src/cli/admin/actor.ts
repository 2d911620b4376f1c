import { userInfo } from 'node:os';
import { actorForm } from '../../rest/actor.js';
import { WrongUsage } from './peer.js';

/**
 * In whose name changes are made: as given, or else the user of the operating system; null where that has no name that
 * the registry takes.
 * @throws WrongUsage for a given name that the registry does not take
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

/** A process may run under a number that no user of the system has. */
function systemUser(): string {
  try {
    return userInfo().username;
  } catch {
    return '';
  }
}
