//! The gateway as its users see it: ports, real servers, real upstreams.

#![recursion_limit = "512"]

mod api;
mod browser;
mod caep;
mod calls;
mod certificates;
mod clients;
mod documents;
mod examples;
mod faults;
mod otlp;
mod process;
mod scene;
mod security;
mod upstreams;
mod watching;
