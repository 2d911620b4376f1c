import type { Clock } from '../../gateway/ports.js';
import type { Timers } from '../../gateway/store-ports.js';

/** The system clock. */
export const systemClock: Clock = { now: () => Date.now() };

/** Node's timers. */
export const systemTimers: Timers = {
  after: (milliseconds, act) => {
    const timer = setTimeout(act, milliseconds);
    return () => {
      clearTimeout(timer);
    };
  },
};
