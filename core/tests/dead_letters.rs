//! Failure ledgers: sentences, a model that is as naive as the contract reads, and what they promise whatever happens.
//!
//! How to repeat a failing run: see `seed`.

#[path = "dead_letters/alerts.rs"]
mod alerts;
#[path = "dead_letters/asking.rs"]
mod asking;
#[path = "damage/mod.rs"]
mod damage;
#[path = "dead_letters/driver.rs"]
mod driver;
#[path = "dead_letters/failing.rs"]
mod failing;
#[path = "dead_letters/governing.rs"]
mod governing;
#[path = "dead_letters/key.rs"]
mod key;
#[path = "dead_letters/large.rs"]
mod large;
#[path = "dead_letters/model.rs"]
mod model;
#[path = "dead_letters/promises.rs"]
mod promises;
#[path = "dead_letters/redriving.rs"]
mod redriving;
#[path = "dead_letters/rules.rs"]
mod rules;
#[path = "seed/mod.rs"]
mod seed;
#[path = "dead_letters/taking.rs"]
mod taking;
