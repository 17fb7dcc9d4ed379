//! The worst days of a ledger: workers die, stop and lose their connections, servers die and are replaced. What counts is what
//! workers were journals.

#[allow(dead_code)]
#[path = "../breaker/driven.rs"]
mod driven;
#[allow(dead_code)]
#[path = "../dead_letters/letters.rs"]
mod letters;
#[allow(dead_code)]
#[path = "../lock/scene.rs"]
mod scene;
#[allow(dead_code)]
#[path = "../abuse/engine/seed.rs"]
mod seed;

mod crashes;
mod judge;
mod kills;
mod worker;
