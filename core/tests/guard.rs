//! Stored policies: sentences, and properties against an independent model.

#[path = "guard/bytes.rs"]
mod bytes;
#[path = "damage/mod.rs"]
mod damage;
#[path = "guard/key.rs"]
mod key;
#[path = "guard/lateness.rs"]
mod lateness;
#[path = "guard/model.rs"]
mod model;
#[path = "guard/promises.rs"]
mod promises;
#[path = "seed/mod.rs"]
mod seed;
#[path = "guard/sentences.rs"]
mod sentences;
