//! The gateway as its users see it: ports, real servers, real upstreams.

#![recursion_limit = "512"]

mod api;
mod caep;
mod calls;
mod examples;
mod faults;
mod overhead;
mod process;
mod scene;
mod security;
mod watching;
