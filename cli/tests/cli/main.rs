//! The binary as a process, as an operator runs it, against real servers.

mod changing;
mod documents;
mod exporter;
mod faults;
mod reading;
mod scene;
mod screens;
