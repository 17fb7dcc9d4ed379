//! The Node SDK's native half: it converts, calls `resil`, converts. Everything that is decided is decided there.
//!
//! | | |
//! | --- | --- |
//! | `executor/` | polls the futures of calls on the thread of JavaScript |
//! | `calls` | what JavaScript says about calls under way |
//! | `quick` | the few functions that every call goes through |
//! | `inside`, `correlation` | locks that a call begins inside of, and its trace |
//! | `loans` | leave that is given in advance, for a turn of the loop |
//! | `guard` | policies around a function, around each other |
//! | `errors`, `thrown`, `convert` | values on their way |
//! | the others | one file for each thing of the SDK |
//!
//! The public face, with its types, is `lib/`: it runs the functions, keeps their values, and makes error classes.

mod calls;
mod convert;
mod correlation;
mod errors;
mod executor;
mod guard;
mod inside;
mod loans;
mod quick;
mod runtime;
mod thrown;

mod breaker;
mod cached;
mod client;
mod holding;
mod http;
mod http_answers;
mod idempotent;
mod limiter;
mod policies;
mod script;
mod testing;
mod whole;
