//! gRPC: what its statuses mean for retries, and what its service configs say.
//!
//! - [`service_config`]: reads the JSON that gRPC clients everywhere are configured with. Needs no gRPC library.
//! - `status` (feature `tonic`): errors as statuses, and which statuses are worth another attempt.

pub mod service_config;
mod settings;
#[cfg(feature = "tonic")]
mod status;
mod status_code;

pub use service_config::ServiceConfig;
pub use settings::MethodSettings;
#[cfg(feature = "tonic")]
pub use status::{CODE_KEY, PUSHBACK_KEY, RetryStatuses};
pub use status_code::StatusCode;
