//! Sending what was counted here.
//!
//! One batch is on its way at a time: the server takes batches of a caller in the order of their numbers. A batch that was
//! not answered keeps its number and is sent again by the next call; the server counts it once. A number is never
//! used for another batch.
//!
//! A task does the sending: after the flush interval, or at once when there is a hurry. It lives while something is
//! unsent, and no longer. A call that begins while a failure is unsent does it itself, see
//! [`settle`](Core::settle).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use resil_core::circuit_breaker::Batch;
use resil_wire::breaker::TallyCall;
use resil_wire::command::{Command, Reply};

use super::batch::CountedOutcome;
use super::core::Core;
use super::finish::in_background;
use super::view::{ReplyOf, StateReply, Tag};
use crate::error::Error;

/// How often a task tries to send before it leaves it to the next call: by then the server is away.
const TRIES: u32 = 5;

/// How many batches of successes a busy breaker sends in a flush interval, about.
const BATCHES_PER_INTERVAL: u32 = 20;

/// From this many calls on nothing waits for its turn.
const PACED_MAX: u64 = 1_500;

/// How often the options are sent along although the circuit stays closed: the key may have been lost.
const REFRESH: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Sender {
    /// Of the batch in front.
    seq: u64,
    generation: u64,
    tag: Tag,
    queue: VecDeque<Batch>,
}

impl Sender {
    fn drop_all(&mut self) {
        self.queue.clear();
        // The one in front may have been sent.
        self.seq += 1;
    }
}

/// When something unsent is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendTime {
    /// A failure, or more than should wait.
    Now,
    /// A full batch: at once, unless one has just gone.
    Soon,
    InTime,
}

impl Core {
    /// Counts a call that was admitted here.
    #[inline]
    pub(super) fn record(self: &Arc<Self>, tag: Tag, outcome: CountedOutcome) {
        let Some(calls) = self.view.record(tag, outcome) else { return };
        if outcome.is_failure || !(2..self.batch).contains(&calls) {
            self.attend_to(calls, outcome);
        }
    }

    /// What there is to be done about an outcome that is not one success among many.
    #[inline(never)]
    fn attend_to(self: &Arc<Self>, calls: u64, outcome: CountedOutcome) {
        if calls == 1 {
            // Not all of those who come while this is unsent look at the clock, and this call may have taken long.
            self.view.expire(self.client.clock().now());
        }
        let is_due = outcome.is_failure || calls >= self.batch;
        if is_due && self.is_memory {
            // Nothing to wait for, unless somebody else is at it. Tried and not awaited: a task that has used up its turn with
            // the runtime would have to wait for a lock that is free.
            if let Ok(mut sender) = self.sender.try_lock()
                && self.flush_as(&mut sender).now_or_never().is_some()
            {
                return;
            }
        }
        if is_due {
            // Of successes only the one that fills the batch says so: those after it find it on its way.
            if outcome.is_failure || calls >= PACED_MAX {
                self.send(SendTime::Now);
            } else if calls.is_multiple_of(self.batch) {
                self.send(SendTime::Soon);
            }
        } else if calls == 1 {
            self.send(SendTime::InTime);
        }
    }

    fn send(self: &Arc<Self>, when: SendTime) {
        match when {
            SendTime::Now => {
                self.urgent.notify_one();
                self.hurry.notify_one();
            }
            SendTime::Soon => self.hurry.notify_one(),
            SendTime::InTime => {}
        }
        if !self.flushing.swap(true, Ordering::SeqCst) {
            let flag = Flag(Arc::clone(self));
            in_background(&self.client, flag.send_all());
        }
    }

    /// Waits until what was failing here is answered; sends it if nobody does. A call made afterwards knows as much as
    /// the server.
    pub(super) async fn settle(&self) -> Result<(), Error> {
        let mut sender = self.sender.lock().await;
        self.flush_as(&mut sender).await
    }

    async fn flush_as(&self, sender: &mut Sender) -> Result<(), Error> {
        loop {
            // What waits to be sent again goes first; what was counted since goes with the next round.
            let is_again = !sender.queue.is_empty();
            self.take_up(sender);
            while let Some(batch) = sender.queue.front().copied() {
                self.send_front(sender, batch).await?;
            }
            if !is_again {
                return Ok(());
            }
        }
    }

    /// Moves what is unsent into the queue, if that is empty.
    fn take_up(&self, sender: &mut Sender) {
        if !sender.queue.is_empty() {
            if self.view.tag() == sender.tag {
                return;
            }
            sender.drop_all();
            self.view.release();
        }
        let (tag, generation, counts) = self.view.take();
        if counts.calls() == 0 {
            return self.view.release();
        }
        sender.queue.extend(counts.split());
        (sender.tag, sender.generation) = (tag, generation);
    }

    async fn send_front(&self, sender: &mut Sender, batch: Batch) -> Result<(), Error> {
        let (generation, seq) = (sender.generation, sender.seq);
        let about = (batch.failures > 0).then(|| self.about_failure.lock().take()).flatten();
        let question = self.view.question(self.client.clock().now());
        let reply = {
            let (key, caller, correlation) = (&self.key, &self.caller, about.as_deref().map(str::as_bytes));
            let tally = Command::BreakerTally(TallyCall { key, generation, caller, seq, batch, correlation });
            self.backend().call(&tally).await
        };
        let counted = match reply {
            Ok(Reply::Counted(counted)) => counted,
            Ok(other) => {
                sender.drop_all();
                self.view.release();
                return Err(Error::Internal(format!("a tally was answered {other:?}")));
            }
            Err(error) => {
                // It is sent again with the batch, unless a later failure has one.
                let mut next = self.about_failure.lock();
                *next = next.take().or(about);
                drop(next);
                self.view.ask();
                if !error.says_away() {
                    // It would be refused for ever.
                    sender.drop_all();
                    self.view.release();
                }
                return Err(error);
            }
        };
        sender.queue.pop_front();
        sender.seq += 1;
        if sender.queue.is_empty() {
            self.view.release();
        }
        let (state, generation) = (counted.state, counted.generation);
        let state_reply =
            StateReply { state, generation, retry_after_ms: counted.retry_after_ms, from: ReplyOf::Tally };
        self.hear(state_reply, question);
        if self.view.tag() != sender.tag && !sender.queue.is_empty() {
            sender.drop_all();
            self.view.release();
        }
        Ok(())
    }

    fn has_unsent(&self) -> bool {
        // The holder of the lock is sending, and may be dropped before it has sent.
        self.view.has_unsent() || self.sender.try_lock().map_or(true, |sender| !sender.queue.is_empty())
    }
}

/// Says that a task is there, as long as it is.
struct Flag(Arc<Core>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.flushing.store(false, Ordering::SeqCst);
    }
}

impl Flag {
    async fn send_all(self) {
        let core = Arc::clone(&self.0);
        let mut flag = Some(self);
        let mut failed = 0;
        loop {
            let pause = core.options.flush_interval * 2u32.pow(failed);
            tokio::select! {
                () = core.client.clock().sleep(pause) => {}
                () = core.hurry.notified(), if failed == 0 => {}
                () = core.client.inner().closing.cancelled(), if failed == 0 => {}
            }
            match core.settle().await {
                Ok(()) => failed = 0,
                Err(_) if failed + 1 < TRIES => failed += 1,
                Err(_) => return,
            }
            if failed == 0 && core.wire.is_some() && core.admit_is_older_than(REFRESH) {
                // A probe, should it be one, is given back by being dropped.
                drop(core.ask_admission().await);
            }
            if core.has_unsent() && failed > 0 {
                continue;
            }
            if core.has_unsent() {
                // Under load every batch is full before the one before it is answered. A breather lets them grow, so that they
                // cost a call next to nothing; a failure does not wait.
                tokio::select! {
                    () = core.client.clock().sleep(core.options.flush_interval / BATCHES_PER_INTERVAL) => {}
                    () = core.urgent.notified() => {}
                    () = core.client.inner().closing.cancelled() => {}
                }
                continue;
            }
            // A call that counted something after that look either finds the flag down, or is found here.
            drop(flag.take());
            if !core.has_unsent() || core.flushing.swap(true, Ordering::SeqCst) {
                return;
            }
            flag = Some(Flag(Arc::clone(&core)));
        }
    }
}
