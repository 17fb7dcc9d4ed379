'use strict';
/** Every file of handles: what each calls `made` are methods of Client. Generated from commands/handles.json by `cargo run -p resil-harness --bin generate`. Do not edit. */
module.exports = [
  require('./breaker.js'),
  require('./cached.js'),
  require('./dead_letters.js'),
  require('./guard.js'),
  require('./holding.js'),
  require('./http.js'),
  require('./limiter.js'),
  require('./policies.js'),
  require('./stored.js'),
  require('./stored_policies.js'),
  require('./whole.js'),
  require('./worker.js'),
];
