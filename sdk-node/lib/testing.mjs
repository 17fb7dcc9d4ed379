/** For tests: see testing.d.ts. */
import testing from './testing.js';

export const { Clock, raw, rawAt } = testing;
