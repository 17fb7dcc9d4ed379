//! Workers as their users run them: one suite that every source passes, what is particular to RabbitMQ and Postgres, and their worst days.

mod broker_restarts;
mod campaign;
mod closing;
mod conformance;
mod crashing;
mod failover;
mod foreign_places;
mod hostile;
mod order;
mod pausing;
mod places;
mod publishing;
mod rabbit;
mod reach;
mod reconnecting;
mod scene;
#[path = "../abuse/engine/seed.rs"]
mod seed;
mod stopping;
