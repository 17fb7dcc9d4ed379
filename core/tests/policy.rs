//! The schema of policies and the machines beside it.

mod policy {
    mod breaker_baseline;
    mod chaos;
    mod concurrency;
    mod documents;
    mod malformed;
    mod random;
    mod retry_budget;
    mod shedding;
    mod throttle;
}
