'use strict';
/**
 * `await using` on Node 18, which lacks the symbols: they are defined the way compilers for it expect them.
 */
for (const name of ['dispose', 'asyncDispose']) {
  if (Symbol[name] === undefined) Object.defineProperty(Symbol, name, { value: Symbol.for(`nodejs.${name}`) });
}
