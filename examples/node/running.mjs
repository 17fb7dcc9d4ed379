/**
 * What the examples have in common: where they run, and as how many processes.
 *
 * Each example is one file that can be read from the top: `npm install` once, then `node payments.mjs`. It needs no server:
 * without an argument it runs on `memory://`, the same state machines inside the program. With a URL (`make run` starts a server on
 * `redis://127.0.0.1:6379`), or with one in `RESIL_URL`, it runs there.
 */
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { connect } from 'resil';

/** The first argument, or else `RESIL_URL`, or else `memory://`. */
export const url = () => process.argv[2] ?? process.env.RESIL_URL ?? 'memory://';

/**
 * A client as a process called `process` would have it. Plain `memory://` would be a store of its own for each; one that has a name is shared
 * by all in this program, so the example gives it its own.
 */
export const connectAs = (where, example, name) => connect(where === 'memory://' ? `memory://${example}` : where, { name });

/** A server remembers earlier runs of a program; the names of this one are others. */
export const thisRun = () => `${Date.now().toString(36)}${Math.floor(Math.random() * 1e6).toString(36)}`;

/** Whether this file is what was started, and not imported by a test. */
export const isProgram = (moduleUrl) => process.argv[1] === fileURLToPath(moduleUrl);
