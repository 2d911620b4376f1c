import { userInfo } from 'node:os';
import { actorForm } from '../../rest/actor.js';
import { WrongUsage } from './peer.js';

/**
 * The actor of changes: the given name, or the user of the operating system. Null if the name of that user is not valid
 * at the registry.
 * @throws WrongUsage if the given name is not valid at the registry
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

/** The name of the user; empty if the system has no user with the uid of this process. */
function systemUser(): string {
  try {
    return userInfo().username;
  } catch {
    return '';
  }
}
