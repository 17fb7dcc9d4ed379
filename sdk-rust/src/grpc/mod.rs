//! gRPC: what its statuses mean for retries, and what its service configs say.
//!
//! - [`service_config`]: reads the JSON that gRPC clients everywhere are configured with. Needs no gRPC library.
//! - `status` (feature `tonic`): errors as statuses, and which statuses are worth another attempt.
//! - `layer` (feature `tonic`): retries, hedging, deadlines and a breaker around a channel.
//! - `single_flight` (feature `tonic`): identical calls at the same time are one.

#[cfg(feature = "tonic")]
pub mod layer;
pub mod service_config;
mod settings;
#[cfg(feature = "tonic")]
pub mod single_flight;
#[cfg(feature = "tonic")]
mod status;
mod status_code;

#[cfg(feature = "tonic")]
pub use layer::{GrpcLayer, GrpcLayerBuilder, GrpcService};
pub use service_config::ServiceConfig;
pub use settings::MethodSettings;
#[cfg(feature = "tonic")]
pub use single_flight::GrpcPolicy;
#[cfg(feature = "tonic")]
pub use status::{CODE_KEY, PUSHBACK_KEY, RetryStatuses};
pub use status_code::StatusCode;
