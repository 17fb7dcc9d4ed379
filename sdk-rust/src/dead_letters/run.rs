//! The loop: it takes messages, hands each to a function, and settles it by how that came out.
//!
//! | the function | the message |
//! | --- | --- |
//! | returns | is done |
//! | fails | is failed, by the [`Settlement`] of its error |
//! | panics | is failed, and nothing else with it |
//!
//! # The end
//! The loop ends with a shutdown of the client, or by the token of [`DeadLetters::run_until`]: nothing more is taken, and what runs is
//! waited for. What is still running at the deadline of the shutdown, or when the loop is dropped, is given back.

use std::error::Error as StdError;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::letter::FailureNote;
use super::taken::{TakenBatch, TakenLetter, TakenMessage};
use super::{DeadLetters, PAUSE};
use crate::error::{Code, Error};
use crate::isolate::{self, Ended};

/// When a message is due again that a handler gave back: soon, but not in the same moment for ever.
const GIVEN_BACK_FOR: Duration = Duration::from_secs(1);

/// What becomes of a message whose handler failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    Fail(FailureNote),
    /// It was not tried: it is due again after this, and nothing is counted.
    GiveBack(Duration),
}

impl From<FailureNote> for Settlement {
    fn from(note: FailureNote) -> Self {
        Self::Fail(note)
    }
}

impl Settlement {
    /// It is due again in a second, and nothing is counted.
    pub fn given_back() -> Self {
        Self::GiveBack(GIVEN_BACK_FOR)
    }

    /// The usual one of an error: by Resil's own error, if that is what it is or comes from; else a failure that counts.
    ///
    /// - Cancelled, and a shutdown: [given back](Self::given_back).
    /// - An open circuit, a rate limit, a full bulkhead, a server that is away: not counted, and not before it may succeed.
    pub fn of(error: &(dyn StdError + 'static)) -> Self {
        let mut cause = Some(error);
        while let Some(current) = cause {
            if let Some(ours) = current.downcast_ref::<Error>() {
                return Self::of_code(ours.code(), error.to_string(), ours.retry_after());
            }
            cause = current.source();
        }
        FailureNote::new(error.to_string()).into()
    }

    /// The same of an error of Resil's, in the form of another language.
    pub fn of_code(code: Code, error: String, retry_after: Option<Duration>) -> Self {
        let note = FailureNote { after: retry_after, ..FailureNote::new(error) };
        match code {
            Code::Cancelled | Code::ShuttingDown => Self::given_back(),
            Code::CircuitOpen | Code::RateLimitExceeded | Code::BulkheadFull | Code::BackendUnavailable => {
                note.not_counted().into()
            }
            _ => note.into(),
        }
    }
}

/// What a loop did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HandledReport {
    pub done: u64,
    pub failed: u64,
    pub given_back: u64,
    /// The server did not get it, or another taker had the message by then.
    pub unsettled: u64,
}

impl DeadLetters {
    /// Calls `handler` for each message, [`concurrency`](super::DeadLettersSettings#structfield.concurrency) at once, until a shutdown of the client. They run inside of this
    /// future: spawn what computes.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use std::time::Duration;
    /// use resil::dead_letters::{DeadLettersSettings, Letter};
    ///
    /// let client = resil::connect("memory://").await?;
    /// let orders = client.dead_letters("orders", DeadLettersSettings::new())?;
    /// orders.fail(&Letter::new("shop/42").payload("7 pieces"), "timeout").await?;
    ///
    /// let handled = orders.run(|message| {
    ///     let client = client.clone();
    ///     async move {
    ///         assert_eq!(message.payload(), Some(&b"7 pieces"[..]));
    ///         # tokio::spawn(async move { client.shutdown(Duration::from_secs(1)).await });
    ///         Ok::<_, std::io::Error>(())
    ///     }
    /// });
    /// assert_eq!(handled.await?.done, 1);
    /// # Ok::<(), resil::Error>(()) }).unwrap();
    /// ```
    pub async fn run<F, Fut, E>(&self, handler: F) -> Result<HandledReport, Error>
    where
        F: Fn(Arc<TakenMessage>) -> Fut,
        Fut: Future<Output = Result<(), E>>,
        E: StdError + 'static,
    {
        self.run_until(&CancellationToken::new(), |error: &E| Settlement::of(error), handler).await
    }

    /// As [`run`](Self::run), until `stop` is cancelled or a shutdown; `judge` says what becomes of a message by the handler's error.
    pub async fn run_until<F, Fut, E, J>(
        &self,
        stop: &CancellationToken,
        judge: J,
        handler: F,
    ) -> Result<HandledReport, Error>
    where
        F: Fn(Arc<TakenMessage>) -> Fut,
        Fut: Future<Output = Result<(), E>>,
        J: Fn(&E) -> Settlement,
    {
        let inner = self.0.client.inner();
        // A shutdown waits until what this drops has gone back.
        let _token = inner.tasks.token();
        let looping = HandlerLoop { letters: self, stop, judge, handler };
        inner.gate.pass_through(|| looping.run()).await?
    }
}

struct HandlerLoop<'a, J, F> {
    letters: &'a DeadLetters,
    stop: &'a CancellationToken,
    judge: J,
    handler: F,
}

/// What became of one message.
enum HandledAs {
    Done,
    Failed,
    GivenBack,
    Unsettled,
}

type Taking<'a> = Pin<Box<dyn Future<Output = Result<TakenBatch, Error>> + Send + 'a>>;

impl<J, F> HandlerLoop<'_, J, F> {
    async fn run<Fut, E>(self) -> Result<HandledReport, Error>
    where
        F: Fn(Arc<TakenMessage>) -> Fut,
        Fut: Future<Output = Result<(), E>>,
        J: Fn(&E) -> Settlement,
    {
        let core = &self.letters.0;
        let closing = &core.client.inner().closing;
        let most = core.settings.concurrency as usize;
        let (mut report, mut failure) = (HandledReport::default(), None);
        let mut running = FuturesUnordered::new();
        let mut taking: Option<Taking<'_>> = None;
        // A message that a taker did not survive is handled when nothing else is, and nothing is taken until it is settled.
        let (mut suspect, mut is_alone) = (None::<TakenLetter>, false);
        let mut pause = Duration::ZERO;
        loop {
            let is_stopping = failure.is_some() || self.stop.is_cancelled() || closing.is_cancelled();
            if is_stopping {
                // A question that is dropped leaves the queue.
                (taking, suspect) = (None, None);
                if running.is_empty() {
                    return failure.map_or(Ok(report), Err);
                }
            } else if running.is_empty()
                && let Some(letter) = suspect.take()
            {
                is_alone = true;
                running.push(self.handle(letter));
            } else if taking.is_none() && running.len() < most && suspect.is_none() && !is_alone {
                let count = (most - running.len()) as u32;
                taking = Some(Box::pin(take_after(pause, self.letters, count)));
            }
            tokio::select! {
                Some(handled) = running.next(), if !running.is_empty() => {
                    is_alone = false;
                    match handled {
                        HandledAs::Done => report.done += 1,
                        HandledAs::Failed => report.failed += 1,
                        HandledAs::GivenBack => report.given_back += 1,
                        HandledAs::Unsettled => report.unsettled += 1,
                    }
                }
                taken = reply_to(&mut taking) => {
                    taking = None;
                    match taken {
                        Ok(batch) => {
                            pause = batch.pause();
                            let (suspects, others): (Vec<_>, Vec<_>) =
                                batch.into_iter().partition(|letter| letter.lapses() > 0);
                            running.extend(others.into_iter().map(|letter| self.handle(letter)));
                            // TAKE gives out one at a time.
                            suspect = suspects.into_iter().next();
                        }
                        // It begins to close, or the server is away, which passes.
                        Err(Error::ShuttingDown) => {}
                        Err(Error::BackendUnavailable(_) | Error::Timeout { .. }) => pause = PAUSE,
                        Err(error) => failure = Some(error),
                    }
                }
                () = self.stop.cancelled(), if !is_stopping => {}
                () = closing.cancelled(), if !is_stopping => {}
            }
        }
    }

    /// Hands one message to the function, and settles it.
    async fn handle<Fut, E>(&self, letter: TakenLetter) -> HandledAs
    where
        F: Fn(Arc<TakenMessage>) -> Fut,
        Fut: Future<Output = Result<(), E>>,
        J: Fn(&E) -> Settlement,
    {
        let (never, message) = (CancellationToken::new(), letter.message());
        let settlement = match isolate::run(&never, || (self.handler)(letter.message())).await {
            Ended::Returned(Ok(())) => None,
            Ended::Returned(Err(error)) => {
                let judged = catch_unwind(AssertUnwindSafe(|| (self.judge)(&error)));
                Some(judged.unwrap_or_else(|payload| crashed(isolate::panic_text(payload))))
            }
            Ended::Panicked(text) => Some(crashed(text)),
            Ended::Cancelled => Some(Settlement::given_back()),
        };
        let (handled, settled) = match settlement {
            None => (HandledAs::Done, letter.done().await),
            Some(Settlement::Fail(note)) => (HandledAs::Failed, letter.fail(note).await.map(drop)),
            Some(Settlement::GiveBack(delay)) => (HandledAs::GivenBack, letter.give_back(delay).await),
        };
        match settled {
            Ok(()) => handled,
            Err(error) => {
                let id = message.id();
                tracing::warn!(%error, ledger = self.letters.name(), %id, "a message could not be settled");
                HandledAs::Unsettled
            }
        }
    }
}

/// Never, if nothing is asked.
async fn reply_to(taking: &mut Option<Taking<'_>>) -> Result<TakenBatch, Error> {
    match taking {
        Some(taking) => taking.await,
        None => std::future::pending().await,
    }
}

async fn take_after(pause: Duration, letters: &DeadLetters, count: u32) -> Result<TakenBatch, Error> {
    if !pause.is_zero() {
        letters.0.client.clock().sleep(pause).await;
    }
    letters.take(count, letters.0.settings.wait).await
}

fn crashed(text: String) -> Settlement {
    FailureNote::new(format!("the handler crashed: {text}")).into()
}
