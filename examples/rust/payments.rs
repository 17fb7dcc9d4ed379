//! A payment service: every order is paid once, whatever happens to the process that pays it.
//!
//! Three things, and each does what the others cannot:
//! - **idempotency**: of all who ask for the same order one pays, the others get its receipt;
//! - **a lock** on the account: one change at a time, so that nobody reads a balance that is about to change;
//! - **fences**: a process may sleep over its lease and not know it. Whatever it writes then carries an old number, and the
//!   ledger refuses it. Leases make accidents rare; fences make them harmless.
//!
//! `cargo run -p resil-examples --bin payments [url]`

use std::collections::HashMap;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use resil::idempotency::IdempotencySettings;
use resil::idempotency::{Idempotent, Outcome, Run};
use resil::lock::LockSettings;
use resil::{Client, Code, Failure};
use resil_examples::{Problem, connect, url};
use serde::{Deserialize, Serialize};

/// How long a process that fell silent is waited for. Short, so that the story is; 30 s and 10 s by default.
const LEASE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(30);

// ---- the ledger: a table outside of Redis, which takes keys and fences --------------------------------------------------------

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    pub order: String,
    pub cents: i64,
    pub number: u32,
}

/// What one payment writes, and by which right: the fence of the order's run, and that of the account's lock.
struct Payment<'a> {
    order: (&'a str, u64),
    account: (&'a str, u64),
    cents: i64,
}

#[derive(Debug, PartialEq, Eq)]
pub enum PayError {
    TooPoor,
    /// Somebody with a higher fence was here: this writer's lease is over, and it did not know.
    StaleFence,
    Resil(resil::Error),
}

#[derive(Default)]
struct Rows {
    highest_fences: HashMap<String, u64>,
    balances: HashMap<String, i64>,
    receipts: HashMap<String, Receipt>,
    /// Fences that were refused, each with the highest that had been seen.
    refused: Vec<(u64, u64)>,
}

#[derive(Default)]
pub struct Ledger(Mutex<Rows>);

impl Ledger {
    /// In one transaction: both fences are checked, and an order that is paid stays paid as it was.
    fn pay(&self, payment: &Payment<'_>) -> Result<Receipt, PayError> {
        let mut rows = self.0.lock().expect("nobody panics in here");
        for (key, carried) in [payment.order, payment.account] {
            let seen = rows.highest_fences.get(key).copied().unwrap_or(0);
            if carried < seen {
                rows.refused.push((carried, seen));
                return Err(PayError::StaleFence);
            }
            rows.highest_fences.insert(key.to_owned(), carried);
        }
        if let Some(receipt) = rows.receipts.get(payment.order.0) {
            return Ok(receipt.clone());
        }
        let number = rows.receipts.len() as u32 + 1;
        let balance = rows.balances.entry(payment.account.0.to_owned()).or_insert(100_000);
        *balance = balance.checked_sub(payment.cents).filter(|left| *left >= 0).ok_or(PayError::TooPoor)?;
        let receipt = Receipt { order: payment.order.0.to_owned(), cents: payment.cents, number };
        rows.receipts.insert(payment.order.0.to_owned(), receipt.clone());
        Ok(receipt)
    }

    pub fn payments(&self) -> usize {
        self.0.lock().expect("nobody panics in here").receipts.len()
    }

    pub fn refused(&self) -> Vec<(u64, u64)> {
        self.0.lock().expect("nobody panics in here").refused.clone()
    }

    pub fn balance(&self, account: &str) -> i64 {
        self.0.lock().expect("nobody panics in here").balances.get(account).copied().unwrap_or(100_000)
    }
}

// ---- the service ---------------------------------------------------------------------------------------------------------------

#[derive(Clone)]
struct Service {
    client: Client,
    orders: Idempotent,
    ledger: Arc<Ledger>,
}

impl Service {
    async fn start(url: &str, process: &str, ledger: &Arc<Ledger>) -> Result<Self, resil::Error> {
        let client = connect(url, "payments", process).await?;
        let orders = client.idempotent("orders", IdempotencySettings::new().lease(LEASE).wait(PATIENCE))?;
        Ok(Self { client, orders, ledger: Arc::clone(ledger) })
    }

    /// The same order may come any number of times, to any process. `before` and `after` are where accidents happen.
    async fn pay(
        &self,
        order: &str,
        cents: i64,
        before: impl FnOnce(),
        after: impl AsyncFnOnce(),
    ) -> Result<Outcome<Receipt>, Failure<PayError>> {
        let request = cents.to_be_bytes();
        self.orders
            .run_json(order, &request, async |run: Run| {
                // A process that is swapped out renews nothing. In this story only one thread sleeps, and leases are renewed on
                // another: so not this one.
                let account = self
                    .client
                    .lock("account:ann", LockSettings::new().lease(LEASE).wait(PATIENCE).without_watchdog())
                    .map_err(PayError::Resil)?;
                let paid = account.with_lock(async |held| {
                    before();
                    // There is a fence unless one asked to go on while the server is away, which this service did not.
                    let (order_fence, account_fence) = (run.fence().unwrap_or(0), held.fence().unwrap_or(0));
                    let payment =
                        Payment { order: (order, order_fence), account: ("account:ann", account_fence), cents };
                    let receipt = self.ledger.pay(&payment)?;
                    after().await;
                    Ok(receipt)
                });
                paid.await.map_err(|failure| match failure {
                    Failure::Inner(error) => error,
                    Failure::Resil(error) => PayError::Resil(error),
                    Failure::Exhausted { last, .. } => last.into_inner().unwrap_or(PayError::TooPoor),
                })
            })
            .await
    }

    async fn pay_plainly(&self, order: &str, cents: i64) -> Result<Outcome<Receipt>, Failure<PayError>> {
        self.pay(order, cents, || {}, async || {}).await
    }
}

// ---- the story -----------------------------------------------------------------------------------------------------------------

/// What was seen, for the tests to judge.
#[derive(Debug)]
pub struct Seen {
    pub requests: usize,
    pub replays: usize,
    pub payments_after_duplicates: usize,
    pub mismatch: Option<Code>,
    /// What the caller of the sleeper got.
    pub sleeper: Result<Outcome<Receipt>, Failure<PayError>>,
    pub refused_fences: Vec<(u64, u64)>,
    pub meanwhile: Outcome<Receipt>,
    pub sleeper_again: Outcome<Receipt>,
    pub after_crash: Outcome<Receipt>,
    pub payments_in_all: usize,
    pub balance: i64,
}

pub async fn story(url: &str) -> Result<Seen, Problem> {
    let ledger = Arc::new(Ledger::default());
    let (first, second) = (Service::start(url, "pod-1", &ledger).await?, Service::start(url, "pod-2", &ledger).await?);
    // A server remembers earlier runs of this program; orders of today are others.
    let today = format!("{:08x}", std::process::id().wrapping_mul(2_654_435_761) ^ now_seconds());
    let order = |number: u32| format!("order-{today}-{number}");

    println!("A customer clicks a hundred times; half of the clicks reach pod-1, half pod-2.");
    let mut clicks = tokio::task::JoinSet::new();
    for click in 0..100 {
        let (service, order) = (if click % 2 == 0 { first.clone() } else { second.clone() }, order(1));
        clicks.spawn(async move { service.pay_plainly(&order, 700).await });
    }
    let mut outcomes = Vec::new();
    while let Some(outcome) = clicks.join_next().await {
        outcomes.push(outcome?.map_err(|failure| format!("a click failed: {failure:?}"))?);
    }
    let replays = outcomes.iter().filter(|outcome| outcome.replayed).count();
    let payments_after_duplicates = ledger.payments();
    println!(
        "  {} replies, all with a receipt: {replays} replays, {payments_after_duplicates} payment",
        outcomes.len()
    );

    println!("The same order with another amount is not the same order.");
    let mismatch = second.pay_plainly(&order(1), 70_000).await.err().and_then(|failure| failure.code());
    println!("  refused: {}", mismatch.map_or("no", Code::text));

    println!("pod-1 takes order 2, has the account and falls asleep before it pays: a pause, a swapped-out machine.");
    let (fell_asleep, asleep) = tokio::sync::oneshot::channel();
    let (wake, sleep) = mpsc::channel::<()>();
    let sleeping = {
        let (url, order, ledger) = (url.to_owned(), order(2), Arc::clone(&ledger));
        // Inside of the lock, whose lease nobody renews.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let service = Service::start(&url, "pod-1", &ledger).await?;
                let nap = move || {
                    let _ = fell_asleep.send(());
                    let _ = sleep.recv_timeout(PATIENCE);
                };
                let first_try = service.pay(&order, 900, nap, async || {}).await;
                let second_try = service.pay_plainly(&order, 900).await;
                Ok::<_, Problem>((first_try, second_try))
            })
        })
    };
    asleep.await?;
    let meanwhile = second.pay_plainly(&order(4), 500).await.map_err(|failure| format!("{failure:?}"))?;
    println!("  pod-2 waited for its lease to end, and pays another order of the same account");
    wake.send(())?;
    let woken = tokio::task::spawn_blocking(move || sleeping.join()).await?;
    let (sleeper, sleeper_again) = woken.map_err(|_| "the sleeper panicked")??;
    let refused_fences = ledger.refused();
    println!("  pod-1 wakes and pays, as it thinks it may; refused, (its fence, the highest seen): {refused_fences:?}");
    println!("  the caller of pod-1 gets {}", described(&sleeper));
    let sleeper_again = sleeper_again.map_err(|failure| format!("{failure:?}"))?;
    println!("  it asks again, with a lease of its own, and the order is paid: {:?}", sleeper_again.value);

    println!("pod-1 pays order 3 and dies before it can say so.");
    let (paid, has_paid) = tokio::sync::oneshot::channel();
    let dying = {
        let (service, order) = (first.clone(), order(3));
        tokio::spawn(async move {
            let die = async || {
                let _ = paid.send(());
                std::future::pending().await
            };
            service.pay(&order, 300, || {}, die).await
        })
    };
    has_paid.await?;
    dying.abort();
    let after_crash = second.pay_plainly(&order(3), 300).await.map_err(|failure| format!("{failure:?}"))?;
    println!("  pod-2 gets attempt {}; the ledger has the payment, and it stays one", after_crash.attempt);

    let (payments_in_all, balance) = (ledger.payments(), ledger.balance("account:ann"));
    println!("{payments_in_all} orders, {payments_in_all} payments, {} cents spent.", 100_000 - balance);
    let requests = outcomes.len();
    Ok(Seen {
        requests,
        replays,
        payments_after_duplicates,
        mismatch,
        sleeper,
        refused_fences,
        meanwhile,
        sleeper_again,
        after_crash,
        payments_in_all,
        balance,
    })
}

/// The ledger's refusal, or LOCK_LOST if the function sees first that its lease is over.
fn described(result: &Result<Outcome<Receipt>, Failure<PayError>>) -> String {
    match result {
        Err(Failure::Resil(error)) => error.code().text().to_owned(),
        Err(Failure::Inner(error)) => format!("{error:?}"),
        other => format!("{other:?}"),
    }
}

fn now_seconds() -> u32 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    since.as_secs() as u32
}

#[tokio::main]
async fn main() -> Result<(), Problem> {
    story(&url()).await.map(|_| ())
}
