'use strict';
/**
 * JSON of other languages, read only if JavaScript has its numbers. Python and Rust write whole numbers beyond 2^53; `JSON.parse` makes
 * the nearest double of them, and Infinity beyond all doubles, without a word.
 *
 * Almost no text has such a number: the text is looked through only if it has sixteen digits in a row, or an exponent.
 */
const SUSPECT = /\d{16}|\d[eE]/;
const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[{}[\],]/g;

/** The JSON has a number that no number of JavaScript is. */
class InexactNumber extends Error {}

/** Whether a double says what this text says. Fractions are doubles in every language; only what is beyond them all is lost. */
function isExact(text) {
  const number = Number(text);
  if (!Number.isFinite(number)) return false;
  if (/^-?\d+$/.test(text)) return Number.isSafeInteger(number) || BigInt(text) === BigInt(number);
  return number !== 0 || !/[1-9]/.test(text.split(/[eE]/)[0]);
}

/** Throws, with the place of the first such number. `text` is JSON. */
function refuseInexact(text) {
  // What is around the token: of an object the last name, of an array how many came before.
  const path = [];
  for (const [token] of text.matchAll(TOKENS)) {
    const inner = path[path.length - 1];
    switch (token[0]) {
      case '{': path.push({ name: undefined }); break;
      case '[': path.push({ index: 0 }); break;
      case '}': case ']': path.pop(); break;
      case ',':
        if (inner.index === undefined) inner.name = undefined;
        else inner.index += 1;
        break;
      case '"':
        if (inner !== undefined && inner.index === undefined && inner.name === undefined) inner.name = JSON.parse(token);
        break;
      default:
        if (!isExact(token)) {
          const at = path.map(({ index, name }) => (index === undefined ? `.${name}` : `[${index}]`)).join('');
          const shown = token.length > 40 ? `a number of ${token.length} characters` : token;
          throw new InexactNumber(`the value${at} is ${shown}, which no number of JavaScript is: write it as text, or choose another serializer`);
        }
    }
  }
}

/** What `JSON.parse` gives, if that is what the text says. */
function parseExactly(text) {
  const value = JSON.parse(text);
  if (SUSPECT.test(text)) refuseInexact(text);
  return value;
}

module.exports = { parseExactly, InexactNumber };
