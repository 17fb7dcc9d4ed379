/** For tests: see testing.d.ts. */
import testing from './testing.js';

export const { Clock, Script, raw, rawAt } = testing;
