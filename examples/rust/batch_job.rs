//! A night's work: many invoices, two processes, and a partner who must not be overrun.
//!
//! From the outside in, for each invoice:
//! - **dispatcher**: a few at a time; one that panics is its own failure;
//! - **in flight**: a shutdown waits for it;
//! - **retry**: what fails by itself is tried again, with a budget, so that a partner who is down is not asked twice as much;
//! - **rate limit**: a position in the queue, shared by both processes. Inside of retry, since each attempt is a call;
//! - **shared bulkhead**: so many calls at once from the whole fleet. Innermost, so that a place is held only while a
//!   call is made, and not while one waits for anything.
//!
//! When it is asked to stop, nothing more is begun, what is being sent is finished, and the rest is left for tomorrow.
//!
//! `cargo run -p resil-examples --bin batch_job [url]`

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use resil::dispatcher::DispatcherSettings;
use resil::dispatcher::{Dispatcher, ItemError};
use resil::limiter::{Limit, Limiter};
use resil::policy::{BudgetSettings, Class, Retry, RetrySettings};
use resil::shared_bulkhead::SharedBulkhead;
use resil::shared_bulkhead::SharedBulkheadSettings;
use resil::{CancellationToken, Client, Failure, ShutdownReport};
use resil_examples::{Problem, connect, url};

const AT_ONCE: u32 = 4;
const INVOICES: u32 = 120;
const PATIENCE: Duration = Duration::from_secs(60);

// ---- the partner: takes four at a time, and fails now and then -----------------------------------------------------------------

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    Busy,
    NoSuchCustomer,
}

#[derive(Debug, Default)]
struct Partner {
    inside: AtomicUsize,
    most_inside: AtomicUsize,
    attempts: Mutex<HashMap<u32, u32>>,
    taken: AtomicUsize,
}

impl Partner {
    async fn send(&self, invoice: u32) -> Result<(), SendError> {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_inside.fetch_max(inside, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(10)).await;
        self.inside.fetch_sub(1, Ordering::SeqCst);
        let attempt = {
            let mut attempts = self.attempts.lock().expect("nobody panics in here");
            *attempts.entry(invoice).and_modify(|attempts| *attempts += 1).or_insert(1)
        };
        match invoice {
            13 => Err(SendError::NoSuchCustomer),
            _ if invoice.is_multiple_of(10) && attempt == 1 => Err(SendError::Busy),
            _ => {
                self.taken.fetch_add(1, Ordering::SeqCst);
                Ok(())
            }
        }
    }

    fn attempts_of(&self, invoice: u32) -> u32 {
        self.attempts.lock().expect("nobody panics in here").get(&invoice).copied().unwrap_or(0)
    }
}

// ---- the job -------------------------------------------------------------------------------------------------------------------

#[derive(Clone)]
struct Job {
    client: Client,
    retry: Retry,
    limiter: Limiter,
    places: SharedBulkhead,
    partner: Arc<Partner>,
}

impl Job {
    async fn start(url: &str, process: &str, partner: &Arc<Partner>) -> Result<Self, resil::Error> {
        let client = connect(url, "batch_job", process).await?;
        let settings = RetrySettings {
            max_attempts: 4,
            initial_backoff: Duration::from_millis(20),
            // At most one retry for every two calls, and ten a second.
            budget: Some(BudgetSettings { percent: 50, ..BudgetSettings::default() }),
            ..RetrySettings::default()
        };
        Ok(Self {
            retry: Retry::new(&settings)?.named("invoices"),
            limiter: client.limiter("partner", Limit::per_second(200).burst(20))?,
            places: client
                .shared_bulkhead("partner", SharedBulkheadSettings::new(AT_ONCE).max_queue(100).max_wait(PATIENCE))?,
            client,
            partner: Arc::clone(partner),
        })
    }

    async fn send(&self, invoice: u32) -> Result<(), Failure<SendError>> {
        if invoice == 42 {
            panic!("an invoice nobody has thought of");
        }
        let classify = |error: &SendError| match error {
            SendError::Busy => Class::Retry,
            SendError::NoSuchCustomer => Class::Ignore,
        };
        let attempt = async || {
            self.limiter.until_ready("invoices", PATIENCE).await?;
            self.places.run(|| self.partner.send(invoice)).await
        };
        self.client.in_flight(self.retry.around(classify, attempt)).await?
    }

    /// Until there are no more invoices, or `stop`: then those that were begun are finished, and no more are taken.
    async fn run(
        &self,
        invoices: impl Iterator<Item = u32> + Send + 'static,
        stop: &CancellationToken,
        mut done: impl FnMut(u32),
    ) -> Tally {
        let source = futures_util::stream::iter(invoices).take_until(stop.clone().cancelled_owned());
        let job = self.clone();
        let results = Dispatcher::new(DispatcherSettings::new(16)).expect("valid settings").stream_unordered(
            source,
            move |invoice| {
                let job = job.clone();
                async move { job.send(invoice).await.map(|()| invoice) }
            },
        );
        let (mut results, mut tally) = (std::pin::pin!(results), Tally::default());
        while let Some(result) = results.next().await {
            match result {
                Ok(invoice) => {
                    tally.sent += 1;
                    done(invoice);
                }
                Err(ItemError::Failed(Failure::Inner(SendError::NoSuchCustomer))) => tally.refused += 1,
                Err(ItemError::Crashed(_)) => tally.panicked += 1,
                Err(_) => tally.failed += 1,
            }
        }
        tally
    }
}

// ---- the story -----------------------------------------------------------------------------------------------------------------

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub sent: usize,
    pub refused: usize,
    pub panicked: usize,
    pub failed: usize,
}

/// What was seen, for the tests to judge.
#[derive(Debug)]
pub struct Seen {
    pub whole_night: Tally,
    pub most_at_once: usize,
    pub attempts_of_a_busy_one: u32,
    pub attempts_of_a_refused_one: u32,
    pub stopped_early: Tally,
    pub taken_by_partner: usize,
    pub report: ShutdownReport,
    pub after_shutdown: bool,
}

pub async fn story(url: &str) -> Result<Seen, Problem> {
    let partner = Arc::new(Partner::default());
    let (one, two) = (Job::start(url, "job-1", &partner).await?, Job::start(url, "job-2", &partner).await?);

    println!("{INVOICES} invoices, two processes of sixteen workers, a partner who takes {AT_ONCE} at once:");
    let stop = CancellationToken::new();
    let (odd, even) = tokio::join!(
        one.run((1..=INVOICES).filter(|invoice| !invoice.is_multiple_of(2)), &stop, |_| {}),
        two.run((1..=INVOICES).filter(|invoice| invoice.is_multiple_of(2)), &stop, |_| {}),
    );
    let whole_night = Tally {
        sent: odd.sent + even.sent,
        refused: odd.refused + even.refused,
        panicked: odd.panicked + even.panicked,
        failed: odd.failed + even.failed,
    };
    let most_at_once = partner.most_inside.load(Ordering::SeqCst);
    println!("  {whole_night:?}; at most {most_at_once} at once");
    let (attempts_of_a_busy_one, attempts_of_a_refused_one) = (partner.attempts_of(10), partner.attempts_of(13));
    println!("  the partner was busy for invoice 10: {attempts_of_a_busy_one} attempts");
    println!("  nobody tries invoice 13 again: {attempts_of_a_refused_one} attempt");

    println!("The next night the machine is asked to stop after ten:");
    let before = partner.taken.load(Ordering::SeqCst);
    let mut sent = 0;
    let stopped_early = one
        .run(1_001.., &stop, |_| {
            sent += 1;
            if sent == 10 {
                stop.cancel();
            }
        })
        .await;
    let taken_by_partner = partner.taken.load(Ordering::SeqCst) - before;
    println!("  {} were sent, and {taken_by_partner} arrived: none was cut in half", stopped_early.sent);
    let report = one.client.shutdown(Duration::from_secs(10)).await;
    println!("  shut down cleanly: {}", report.is_clean());
    let after_shutdown = one.send(9_999).await.is_ok();
    Ok(Seen {
        whole_night,
        most_at_once,
        attempts_of_a_busy_one,
        attempts_of_a_refused_one,
        stopped_early,
        taken_by_partner,
        report,
        after_shutdown,
    })
}

#[tokio::main]
async fn main() -> Result<(), Problem> {
    story(&url()).await.map(|_| ())
}
