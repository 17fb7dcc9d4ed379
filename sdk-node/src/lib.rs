//! The native half of the Node SDK: it converts, calls `resil`, and converts back. All decisions are made there.
//!
//! | | |
//! | --- | --- |
//! | `executor/` | polls the futures of calls on the thread of JavaScript |
//! | `calls` | what goes between JavaScript and the executor: outcomes in, events out |
//! | `scope` | the locks and the trace that a call begins inside of |
//! | `guard` | policies around a function, around each other |
//! | `errors`, `thrown`, `convert` | values on their way |
//! | `edge` | the only unsafe code |
//! | `client`, `handles/` | connecting; one file for each thing of the SDK |
//!
//! The public face, with its types, is `lib/`: it runs the functions, keeps their values, and makes the error classes.

mod calls;
mod client;
mod convert;
mod edge;
mod errors;
mod executor;
mod guard;
mod handles;
mod http;
mod runtime;
mod scope;
mod telemetry;
mod testing;
mod thrown;

use handles::*;
