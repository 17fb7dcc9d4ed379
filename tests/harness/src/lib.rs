//! Real servers for tests: started on free ports, asked until they reply, killed on drop.
//!
//! ```no_run
//! use resil_harness::{Options, Server, ok};
//!
//! let server = Server::fresh();                                  // the module loaded, an empty keyspace
//! let other = Server::start(Options::default().module_arg("x")); // its own process, port and folder
//! ok(&mut server.connect(), &["SET", "key", "value"]);
//! ```
//!
//! What holds for everything here:
//! 1. No fixed ports and no shared folders: any number of tests may run at once, in threads or processes.
//! 2. Every wait has a bound; when it passes, the panic says what was awaited and shows the server's log.
//! 3. No server outlives its test: it dies on drop, and with the test process however that ends.
//! 4. A server that crashes fails the test that owns it, even if no assertion noticed.
//! 5. Every server fills freed memory with junk, so that a use of it crashes. Measurements set `RESIL_ALLOCATOR=plain`.
//!
//! Beside them: [`RabbitMq`] and [`Postgres`], from the packages of the system, and a [`Relay`] that cuts, delays and freezes connections.
//!
//! Which server: `RESIL_SERVER` names a folder of `target/servers` (default `redis-7.0`).
//! Which module: `RESIL_MODULE`, else `release/libresil.so` of the cargo target folder.
//!
//! This crate does not build the module (`make module`) nor fetch servers (`scripts/servers`).

mod cluster;
mod command;
mod counting;
mod flavor;
mod folder;
mod lifecycle;
mod memory;
mod options;
mod postgres;
mod process;
mod rabbitmq;
mod relay;
mod replication;
mod server;
mod wait;

pub use cluster::Cluster;
pub use command::{error_line, error_text, ok, reply};
pub use flavor::{Flavor, flavors, module_path};
pub use options::Options;
pub use postgres::Postgres;
pub use rabbitmq::RabbitMq;
pub use relay::Relay;
pub use replication::{wait_for_sync, wait_until_counted};
pub use server::Server;
pub use wait::{becomes_true, eventually};
