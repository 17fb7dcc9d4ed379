//! Handlers that stay on the thread that runs the worker: an event loop of Python, the thread of JavaScript.
//!
//! The worker itself goes on as ever, on the runtime. Each message is handed over to the future that [`Worker::run_local`] returned, and the
//! result handed back.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot};

use super::Worker;
use super::message::WorkerMessage;
use super::source::Source;
use super::state::WorkerReport;
use super::verdict::{GIVEN_BACK_FOR, WorkError, WorkVerdict};
use crate::error::Error;
use crate::isolate::panic_text;

type Handled = Result<(), WorkError>;

impl Worker {
    /// The same as [`run`](Self::run), with handlers that are polled where this future is.
    pub async fn run_local<S, F, Fut>(&self, source: S, handler: F) -> Result<WorkerReport, Error>
    where
        S: Source,
        F: Fn(Arc<WorkerMessage>) -> Fut,
        Fut: Future<Output = Handled>,
    {
        let (hand_over, mut handed_over) = mpsc::unbounded_channel();
        let running = self.run(source, move |message| {
            let (tell, recorded) = oneshot::channel();
            let is_here = hand_over.send((message, tell)).is_ok();
            async move {
                let gone = || WorkError::new(WorkVerdict::GiveBack(GIVEN_BACK_FOR), "nobody is there to handle it");
                if is_here { recorded.await.unwrap_or_else(|_| Err(gone())) } else { Err(gone()) }
            }
        });
        let mut running = std::pin::pin!(running);
        let mut handling = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                report = &mut running => return report,
                Some((message, tell)) = handed_over.recv() => handling.push(handle(&handler, message, tell)),
                Some(()) = handling.next() => {}
            }
        }
    }
}

/// Until it returns, or nobody waits for it any more.
async fn handle<F, Fut>(handler: &F, message: Arc<WorkerMessage>, mut tell: oneshot::Sender<Handled>)
where
    F: Fn(Arc<WorkerMessage>) -> Fut,
    Fut: Future<Output = Handled>,
{
    let handled = AssertUnwindSafe(async { handler(message).await }).catch_unwind();
    let result = tokio::select! {
        biased;
        result = handled => result,
        () = tell.closed() => return,
    };
    let crashed = |panic| Err(WorkError::retry(format!("the handler crashed: {}", panic_text(panic))));
    let _ = tell.send(result.unwrap_or_else(crashed));
}
