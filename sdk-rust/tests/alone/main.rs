//! What the SDK promises without any server: policies, edges, and every primitive on `memory://`.
//!
//! One program, because linking thirty would take longer than running them. What needs a server is in `on_server` and
//! `faults`.

mod adaptive_policy;
mod breaker;
mod cache;
mod cache_names;
mod counted;
mod cut_short;
mod dead_letters;
mod dispatcher;
mod drive;
mod errors;
mod group;
mod grpc_config;
#[cfg(feature = "tonic")]
mod grpc_status;
mod http;
#[cfg(feature = "http")]
mod http_layers;
mod idempotency;
mod limiter;
mod lock;
mod on_result;
#[path = "../both/one_lock.rs"]
mod one_lock;
mod outside;
mod policies;
mod policies_bulkhead;
mod policies_metrics;
mod policies_settings;
mod primitives_metrics;
mod shared_bulkhead;
mod shutdown;
mod testing;
#[cfg(feature = "tonic")]
mod tonic_layer;
#[cfg(feature = "tonic")]
mod tonic_single_flight;
#[cfg(feature = "tower")]
mod tower_layers;
#[cfg(feature = "redis")]
mod warnings;
mod whole_policy;
mod whole_policy_budget;
mod whole_policy_settings;
