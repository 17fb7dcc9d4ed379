//! The resilience service: calls to configured upstreams under a policy, for services that link no library; health of what they depend on;
//! and a dashboard for those who run them. Everything is decided by the SDK `resil`; here are only transports, roles and views.
//!
//! # The map
//! - `config`: a file and variables; `run`: what a process is made of, from start to drain.
//! - `serve`, `patience`, `tls`, `identity`: connections, how long they are waited for, and who is at their other end.
//! - `grpc`: the service `resil.v1.ResilienceService`; `upstream`: calls that are made for others; `policies`: which policy they run under.
//! - `feed`, `circuits`: what the server publishes, in order and with its gaps.
//! - `health`: how the registered services are, and events about it; `audit`: who did what.
//! - `http`: probes, metrics, the JSON API, and the dashboard.
//! - `telemetry`: logs, traces, metrics; `demo`: all of it in one process.

#![forbid(unsafe_code)]
// The futures of a policy around a call of an upstream are deep types.
#![recursion_limit = "512"]

pub mod audit;
pub mod circuits;
pub mod config;
pub mod demo;
pub mod drain;
pub mod errors;
pub mod feed;
pub mod grpc;
pub mod health;
pub mod http;
pub mod identity;
pub mod metrics;
pub mod patience;
pub mod policies;
pub mod roles;
pub mod run;
pub mod serve;
pub mod telemetry;
pub mod tls;
pub mod upstream;

/// What the definitions in `proto/` are compiled to.
pub mod proto {
    pub mod resil {
        #[allow(clippy::doc_markdown, clippy::large_enum_variant)]
        pub mod v1 {
            tonic::include_proto!("resil.v1");
        }
        pub mod example {
            pub mod v1 {
                tonic::include_proto!("resil.example.v1");
            }
        }
    }
    /// For reflection.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
}

/// Milliseconds since the Unix epoch.
pub fn now_ms() -> u64 {
    epoch_ms(std::time::SystemTime::now())
}

pub fn epoch_ms(moment: std::time::SystemTime) -> u64 {
    let since = moment.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// 32 hex digits that nobody can guess.
pub fn random_id() -> String {
    format!("{:032x}", rand::random::<u128>())
}
