//! RabbitMQ: a source on a queue, and a publisher. Each has a connection and credentials of its own.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use resil::worker::rabbit::{RabbitPublisher, RabbitSettings, RabbitSource};
//! use resil::worker::{OutgoingMessage, WorkerSettings};
//!
//! let client = resil::connect("redis://127.0.0.1").await?;
//! let settings = RabbitSettings::new("amqp://orders-out:secret@127.0.0.1", "orders").consumer("orders-in", "secret");
//! let publisher = RabbitPublisher::new(&client, &settings)?;
//! publisher.publish("", "orders", &OutgoingMessage::new("7 pieces")).await?;
//!
//! let worker = client.worker("orders", WorkerSettings::new())?;
//! worker.run(RabbitSource::new(&client, settings)?, |message| async move { Ok(println!("{}", message.id())) }).await?;
//! # Ok(()) }
//! ```
//!
//! # What is on the broker
//! `orders`: a quorum queue with a delivery limit, where the server has them. `orders.dlx` and `orders.dead`: what the broker gives up goes there, and the
//! worker moves it to its ledger. All of it is declared again after every reconnect. A queue that is there already with other arguments is used as it
//! is.
//!
//! # What is lost with a connection
//! Nothing: the broker delivers again what was not acknowledged. Messages that were fetched and not begun are dropped here, because they come again.

mod consumed;
mod delivery;
mod link;
mod publisher;
mod settings;
mod settling;
mod source;
mod topology;

pub use self::publisher::RabbitPublisher;
pub use self::settings::{QueueKind, RabbitBinding, RabbitSettings};
pub use self::source::{RabbitReceipt, RabbitSource};
