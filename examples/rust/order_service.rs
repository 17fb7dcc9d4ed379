//! An order service: each order and its event are written together, the events go to a broker, and a worker charges the orders.
//!
//! ```text
//! order + event, one transaction ──▶ outbox ──▶ relay: publishes, then acknowledges ──▶ RabbitMQ ──▶ worker: charges once
//! ```
//! - **outbox**: there is never an order without its event;
//! - **relay**: a worker on the outbox whose handler publishes. An event may be published twice, under one id;
//! - **worker**: a row in the transaction of the charge says that it happened, so each order is charged once;
//! - **poison**: an event that nobody can read is dead at once, and kept in the ledger with its error;
//! - **a broker restart in the middle**: both go on by themselves when the broker is back.
//!
//! `cargo run -p resil-examples --bin order_service [url] [postgres url] [amqp url]`: without Postgres and RabbitMQ the events come from a ledger, and
//! this runs on `memory://`.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use resil::Client;
use resil::dead_letters::{ClassChange, DeadLetters, DeadLettersSettings, LedgerChange, LetterFilter, LetterState};
use resil::dead_letters::{FailureNote, Letter};
use resil::worker::postgres::{Outbox, OutboxSettings, OutboxSource, ProcessedEvents, connect as connect_to_postgres};
use resil::worker::rabbit::{RabbitPublisher, RabbitSettings, RabbitSource};
use resil::worker::{LedgerSource, OutgoingMessage, Source, WorkError, Worker, WorkerReport, WorkerSettings};
use resil_examples::{Problem, connect, url};

const PATIENCE: Duration = Duration::from_secs(60);
const ORDERS: u32 = 20;

/// Where the service keeps its orders, and what carries its events.
#[derive(Debug, Clone)]
pub struct Brokers {
    pub postgres: String,
    pub rabbit: String,
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Order {
    order: u32,
    cents: i64,
}

/// Charges each event once: in memory, or in a transaction with `processed_events`.
#[derive(Debug)]
struct Bank {
    postgres: Option<String>,
    charged: Mutex<BTreeMap<String, i64>>,
}

impl Bank {
    async fn charge(&self, id: &str, order: &Order) -> Result<(), WorkError> {
        if let Some(postgres) = &self.postgres {
            let mut database = connect_to_postgres(postgres).await?;
            let charge = database.transaction().await?;
            if ProcessedEvents::new("bank").is_first(&charge, id).await? {
                charge.execute("INSERT INTO charges VALUES ($1, $2)", &[&id, &order.cents]).await?;
            }
            charge.commit().await?;
        }
        self.charged.lock().expect("nobody panics in here").entry(id.to_owned()).or_insert(order.cents);
        Ok(())
    }

    fn count(&self) -> usize {
        self.charged.lock().expect("nobody panics in here").len()
    }
}

#[derive(Debug)]
pub struct Seen {
    /// As the bank's books have them.
    pub charged: Vec<i64>,
    pub dead: Vec<String>,
    pub report: WorkerReport,
    /// How often the worker's source was connected.
    pub connections: u64,
}

/// The events of these orders; the last is no order.
fn events(orders: Range<u32>) -> impl Iterator<Item = (String, String)> {
    let order = |order| serde_json::to_string(&Order { order, cents: 100 + i64::from(order) }).unwrap_or_default();
    let poison = (orders.end == ORDERS).then(|| ("poison".to_owned(), "{".to_owned()));
    orders.map(move |number| (number.to_string(), order(number))).chain(poison)
}

async fn migrate(postgres: &str) -> Result<(), Problem> {
    let shop = connect_to_postgres(postgres).await?;
    shop.batch_execute(&Outbox::default().migration()).await?;
    shop.batch_execute(ProcessedEvents::MIGRATION).await?;
    shop.batch_execute("CREATE TABLE orders (id text); CREATE TABLE charges (id text, cents bigint)").await?;
    Ok(())
}

async fn place_orders(brokers: Option<&Brokers>, ledger: &DeadLetters, orders: Range<u32>) -> Result<(), Problem> {
    let Some(Brokers { postgres, .. }) = brokers else {
        for (id, event) in events(orders) {
            ledger.fail(&Letter::of("shop", &id).payload(event), FailureNote::new("sent").not_counted()).await?;
        }
        return Ok(());
    };
    let mut shop = connect_to_postgres(postgres).await?;
    for (id, event) in events(orders) {
        // Both, or neither.
        let order = shop.transaction().await?;
        order.execute("INSERT INTO orders VALUES ($1)", &[&id]).await?;
        Outbox::default().add(&order, &OutgoingMessage::new(event).id(id).kind("order.placed")).await?;
        order.commit().await?;
    }
    Ok(())
}

/// Events go from the outbox to the broker. One that was published is acknowledged; one that was not stays.
async fn relay(relay: Worker, source: OutboxSource, publisher: RabbitPublisher) -> Result<WorkerReport, resil::Error> {
    let handled = relay.run(source, move |message| {
        let publisher = publisher.clone();
        async move {
            let id = message.id().rsplit('/').next().unwrap_or_default();
            let event = OutgoingMessage::new(message.payload().clone()).id(id).caused_by(&message);
            publisher.publish("", "order-events", &event).await?;
            Ok(())
        }
    });
    handled.await
}

async fn charge(worker: Worker, source: impl Source, bank: Arc<Bank>) -> Result<WorkerReport, resil::Error> {
    let handled = worker.run(source, move |message| {
        let bank = Arc::clone(&bank);
        async move {
            let order: Order = serde_json::from_slice(message.payload())?; // what cannot be read is dead at once
            bank.charge(message.id(), &order).await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(())
        }
    });
    handled.await
}

/// Retries that a story need not wait for.
async fn quick(ledger: &DeadLetters) -> Result<(), resil::Error> {
    let quick = ClassChange::default().retries(20).base(Duration::from_millis(100)).cap(Duration::from_secs(1));
    ledger.by("ada").configure(&LedgerChange::new().transient(quick).external(quick)).await.map(drop)
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) -> Result<(), Problem> {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.map_err(|_| format!("in vain: {what}").into())
}

/// `restart` restarts the broker, while the workers run.
pub async fn story_with<F: Future<Output = ()>>(
    url: &str,
    brokers: Option<Brokers>,
    restart: impl FnOnce() -> F,
) -> Result<Seen, Problem> {
    let client: Client = connect(url, "order_service", "service").await?;
    let ledger = client.dead_letters("order-charges", DeadLettersSettings::new())?;
    quick(&ledger).await?;
    quick(&client.dead_letters("order-events", DeadLettersSettings::new())?).await?;
    let postgres = brokers.as_ref().map(|brokers| brokers.postgres.clone());
    let bank = Arc::new(Bank { postgres, charged: Mutex::default() });
    let worker = client.worker("order-charges", WorkerSettings::new().workers(2))?;
    let relaying = client.worker("order-events", WorkerSettings::new())?;
    let mut tasks = tokio::task::JoinSet::new();
    let is_settled = async || bank.count() == ORDERS as usize && ledger.info().await.is_ok_and(|info| info.dead == 1);
    let charging = match &brokers {
        Some(Brokers { postgres, rabbit }) => {
            migrate(postgres).await?;
            let settings = RabbitSettings::new(rabbit, "order-events").prefetch(2).workers(2);
            let outbox = OutboxSettings::new(postgres).poll(Duration::from_millis(50));
            let source = OutboxSource::new(&client, outbox)?;
            let publisher = RabbitPublisher::new(&client, &settings)?;
            let charging =
                tokio::spawn(charge(worker.clone(), RabbitSource::new(&client, settings)?, Arc::clone(&bank)));
            // The worker declares the queue: before that nothing takes an event.
            let is_declared = async || worker.health().source.is_some_and(|source| source.is_connected);
            until("there is a queue", is_declared).await?;
            tasks.spawn(relay(relaying.clone(), source, publisher));
            charging
        }
        None => {
            let source = LedgerSource::new(&client, "order-charges")?;
            tokio::spawn(charge(worker.clone(), source, Arc::clone(&bank)))
        }
    };
    place_orders(brokers.as_ref(), &ledger, 0..ORDERS / 2).await?;
    until("half of the orders are charged", async || bank.count() >= ORDERS as usize / 2).await?;
    restart().await;
    place_orders(brokers.as_ref(), &ledger, ORDERS / 2..ORDERS).await?;
    until("every order is charged, and the poison is dead", is_settled).await?;
    let connections = worker.health().source.map_or(0, |source| source.connections);
    worker.stopper().cancel();
    relaying.stopper().cancel();
    let report = charging.await??;
    while let Some(relayed) = tasks.join_next().await {
        relayed??;
    }
    let mut charged: Vec<i64> = match &brokers {
        Some(Brokers { postgres, .. }) => {
            let rows = connect_to_postgres(postgres).await?.query("SELECT cents FROM charges", &[]).await?;
            rows.iter().map(|row| row.get(0)).collect()
        }
        None => bank.charged.lock().expect("nobody panics in here").values().copied().collect(),
    };
    charged.sort_unstable();
    let page = ledger.list(&LetterFilter::new().state(LetterState::Dead)).await?;
    let dead = page.letters.iter().map(|letter| letter.last_error.clone().unwrap_or_default()).collect();
    client.shutdown(Duration::from_secs(5)).await;
    Ok(Seen { charged, dead, report, connections })
}

pub async fn story(url: &str) -> Result<Seen, Problem> {
    // In memory each story has a store of its own.
    let store = format!("memory://order-service-{:x}", std::time::SystemTime::UNIX_EPOCH.elapsed()?.as_nanos());
    story_with(if url.starts_with("memory") { &store } else { url }, None, async || {}).await
}

#[tokio::main]
async fn main() -> Result<(), Problem> {
    let mut places = std::env::args().skip(2);
    let brokers = places.next().zip(places.next()).map(|(postgres, rabbit)| Brokers { postgres, rabbit });
    let seen = match brokers {
        Some(brokers) => story_with(&url(), Some(brokers), async || {}).await?,
        None => story(&url()).await?,
    };
    println!("{ORDERS} orders were placed, and one event that nobody can read");
    println!("  charged once each: {}, {} cents in all", seen.charged.len(), seen.charged.iter().sum::<i64>());
    seen.dead.iter().for_each(|error| println!("  dead, and kept: {error}"));
    println!("  {:?}", seen.report);
    println!("  connections of the source: {}", seen.connections);
    Ok(())
}
