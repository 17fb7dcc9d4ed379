//! Orders that a worker handles: a bank that is down for a while, a poison message, and a stop in the middle.
//!
//! - **verdicts**: the bank's error is retried by the ledger, which waits; what is no order is dead at once, and kept;
//! - **drain**: a worker that stops finishes what it has begun and gives back the rest, which the next worker takes;
//! - **once**: the id of a message is the key, so that an order that is delivered twice is charged once.
//!
//! The messages come from the ledger itself, so that this runs on `memory://`. With `RabbitSource`, `StreamSource` or `OutboxSource` in place of
//! `LedgerSource` nothing else changes: see docs/workers.md.
//!
//! `cargo run -p resil-examples --bin order_worker [url]`

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use resil::CancellationToken;
use resil::dead_letters::{DeadLettersSettings, Letter, LetterFilter, LetterState};
use resil::worker::{LedgerSource, WorkError, WorkerReport, WorkerSettings};
use resil_examples::{Problem, connect, url};

const PATIENCE: Duration = Duration::from_secs(60);

/// Charges each order once. It is down for its first two calls.
#[derive(Debug, Default)]
struct Bank {
    calls: AtomicU32,
    charged: Mutex<BTreeSet<String>>,
}

impl Bank {
    fn charge(&self, order: &str) -> Result<usize, std::io::Error> {
        if self.calls.fetch_add(1, Ordering::SeqCst) < 2 {
            return Err(std::io::ErrorKind::ConnectionRefused.into());
        }
        let mut charged = self.charged.lock().expect("nobody panics in here");
        charged.insert(order.to_owned());
        Ok(charged.len())
    }
}

#[derive(Debug)]
pub struct Seen {
    pub charged: Vec<String>,
    pub dead: Vec<String>,
    pub first: WorkerReport,
    pub second: WorkerReport,
}

/// Works until `until` orders are charged, or it is asked to stop.
async fn work(url: &str, process: &str, bank: &Arc<Bank>, until: usize) -> Result<WorkerReport, Problem> {
    let client = connect(url, "order_worker", process).await?;
    let worker = client.worker("orders", WorkerSettings::new().workers(1))?;
    let (stop, bank) = (worker.stopper(), Arc::clone(bank));
    let timer = stop_after(worker.stopper(), PATIENCE);
    let handled = worker.run(LedgerSource::new(&client, "orders")?, move |message| {
        let (stop, bank) = (stop.clone(), Arc::clone(&bank));
        async move {
            let order = std::str::from_utf8(message.payload())?;
            if !order.starts_with("order-") {
                return Err(WorkError::permanent("not an order"));
            }
            if bank.charge(order)? >= until {
                stop.cancel();
            }
            Ok(())
        }
    });
    let report = handled.await?;
    timer.abort();
    client.shutdown(Duration::from_secs(5)).await;
    println!("  {process}: {report:?}");
    Ok(report)
}

fn stop_after(stop: CancellationToken, span: Duration) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        tokio::time::sleep(span).await;
        stop.cancel();
    })
}

pub async fn story(url: &str) -> Result<Seen, Problem> {
    // In memory each story has a store of its own, which its two workers share.
    let store = format!("memory://orders-{:x}", std::time::SystemTime::UNIX_EPOCH.elapsed()?.as_nanos());
    let url = if url.starts_with("memory") { &store } else { url };
    let client = connect(url, "order_worker", "shop").await?;
    let ledger = client.dead_letters("orders", DeadLettersSettings::new())?;
    for number in 1..=6 {
        let payload = if number == 5 { "?".to_owned() } else { format!("order-{number}") };
        ledger.fail(&Letter::of("shop", &format!("order-{number}")).payload(payload), "the shop was busy").await?;
    }
    let bank = Arc::new(Bank::default());
    println!("Six messages, a bank that is down, and a worker that is stopped after two orders:");
    let first = work(url, "worker-1", &bank, 2).await?;
    println!("The next one goes on:");
    let second = work(url, "worker-2", &bank, 5).await?;
    // The poison may come after the last order.
    let mut page = ledger.list(&LetterFilter::new().state(LetterState::Dead)).await?;
    if page.letters.is_empty() {
        let last = LedgerSource::new(&client, "orders")?;
        let worker = client.worker("orders", WorkerSettings::new())?;
        let stop = worker.stopper();
        let handled = worker.run(last, move |_| {
            stop.cancel();
            async { Err(WorkError::permanent("not an order")) }
        });
        handled.await?;
        page = ledger.list(&LetterFilter::new().state(LetterState::Dead)).await?;
    }
    let name = |id: &str| id.rsplit('/').next().unwrap_or_default().to_owned();
    let said = |letter: &resil::dead_letters::LetterView| letter.last_error.clone().unwrap_or_default();
    let dead: Vec<String> =
        page.letters.iter().map(|letter| format!("{}: {}", name(&letter.id), said(letter))).collect();
    println!("Dead, until somebody has found out why: {dead:?}");
    let charged = bank.charged.lock().expect("nobody panics in here").iter().cloned().collect();
    Ok(Seen { charged, dead, first, second })
}

#[tokio::main]
async fn main() -> Result<(), Problem> {
    story(&url()).await.map(|_| ())
}
