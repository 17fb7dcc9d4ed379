//! The gateway as its users see it: ports, real servers, real upstreams.

#![recursion_limit = "512"]

mod api;
mod browser;
mod caep;
mod calls;
mod certificates;
mod clients;
mod connection;
mod definition;
mod documents;
mod examples;
mod faults;
mod in_flight;
mod otlp;
mod process;
mod promises;
mod scene;
mod security;
mod upstreams;
mod watching;
