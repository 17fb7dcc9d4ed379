//! The schema of policies and the machines beside it.

#[path = "seed/mod.rs"]
mod seed;

mod policy {
    mod breaker_baseline;
    mod chaos;
    mod concurrency;
    mod documents;
    mod malformed;
    mod published;
    mod random;
    mod retry_budget;
    mod shedding;
    mod throttle;
}
