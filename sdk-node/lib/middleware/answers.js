'use strict';
/**
 * Whole responses: `{status, headers, body}`, with headers as name and value in turn.
 */
const { problem } = require('../http.js');
const { asError, InvalidArgumentError } = require('../errors.js');

/** Headers as pairs; several of one name are one list, as Node sets them. */
function headersOf(flat) {
  const headers = new Map();
  for (let at = 0; at < flat.length; at += 2) {
    const [name, value] = [flat[at], flat[at + 1]];
    const known = headers.get(name);
    headers.set(name, known === undefined ? value : [known, value].flat());
  }
  return headers;
}

/** The other way around: what Node has, in turn. */
function flat(headers) {
  const all = [];
  for (const [name, value] of Object.entries(headers)) {
    if (value === undefined) continue;
    for (const one of Array.isArray(value) ? value : [value]) all.push(name, String(one));
  }
  return all;
}

/** An error of ours as a response. */
function problemOf(error) {
  const { status, headers, body } = problem(error);
  return { status, headers: flat(headers), body: Buffer.from(body) };
}

/**
 * What is wrong with what the service itself said is no fault of the client: it is thrown on, as the plain error it is. What is thrown
 * without being an error (`undefined`, `'route'`) would mean something else to a framework.
 */
async function ofTheService(name, run) {
  try {
    return await run();
  } catch (error) {
    throw error instanceof InvalidArgumentError ? new TypeError(error.message, { cause: error }) : asError(name, error);
  }
}

/** Warns the service of a fault of its own that no response can carry. */
function report(name, error) {
  try {
    process.emitWarning(asError(name, error));
  } catch {
    // A warning that cannot be made of it must not end the process.
  }
}

/** About the body of a response that another one takes the place of. */
const OF_THE_BODY = ['content-length', 'content-encoding', 'content-disposition', 'transfer-encoding', 'etag', 'last-modified', 'location'];

module.exports = { headersOf, flat, problemOf, ofTheService, report, OF_THE_BODY };
