//! Where calls come in, and how a shutdown knows whom to wait for.
//!
//! A sign says whether the gate is open, closing (only those may come in who are inside already) or shut (nobody may). Whoever
//! comes in is counted first, see [`crowd`](super::crowd), and reads the sign afterwards. Whoever closes writes the sign first,
//! waits until that and every coming in before it has been seen, and counts afterwards. So a call came in before the gate closed
//! and is counted, or it reads the sign and is refused.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering, fence};

use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::task::futures::TaskLocalFuture;
use tokio_util::sync::CancellationToken;

use super::crowd::{Crowd, SEEN_BY_ALL};
use crate::error::Error;

const OPEN: u8 = 0;
/// Nothing new may come in.
const CLOSING: u8 = 1;
/// Nothing at all may come in, not even from inside.
const SHUT: u8 = 2;

/// The gates a task is inside of. Few: one per client, nested.
pub(crate) type Inside = SmallVec<[usize; 2]>;

tokio::task_local! {
    static INSIDE: Inside;
}

/// Runs `future` as what is inside of these gates.
pub(crate) fn scope<F: Future>(inside: Inside, future: F) -> TaskLocalFuture<Inside, F> {
    INSIDE.scope(inside, future)
}

/// What this task is inside of.
pub(crate) fn inside() -> Inside {
    INSIDE.try_with(SmallVec::clone).unwrap_or_default()
}

/// Where calls come in. A few plain writes and reads a call.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gate(Arc<GateState>);

#[derive(Debug, Default)]
struct GateState {
    sign: AtomicU8,
    crowd: Crowd,
    emptied: Notify,
    cut_off: CancellationToken,
}

impl Gate {
    /// For a call that begins. Hold the pass until it ends.
    #[inline(always)]
    pub fn enter(&self) -> Result<Pass<'_>, Error> {
        self.count_in().map(|entry| match entry {
            Entry::Counted => Pass(Some(&self.0)),
            Entry::Inside => Pass(None),
        })
    }

    /// The same for a call that outlives the borrow.
    pub fn enter_owned(&self) -> Result<OwnedPass, Error> {
        self.count_in().map(|entry| match entry {
            Entry::Counted => OwnedPass(Some(Arc::clone(&self.0))),
            Entry::Inside => OwnedPass(None),
        })
    }

    /// Runs it as one call, and marks this task as inside meanwhile. Dropped when the gate is shut.
    ///
    /// `make` is called here, and not by the caller: a future that is handed over is kept twice, as what came and as what runs.
    pub async fn pass_through<F: Future>(&self, make: impl FnOnce() -> F) -> Result<F::Output, Error> {
        let _pass = self.enter()?;
        let mut inside = inside();
        inside.push(self.id());
        tokio::select! {
            biased;
            output = INSIDE.scope(inside, make()) => Ok(output),
            () = self.0.cut_off.cancelled() => Err(Error::ShuttingDown),
        }
    }

    /// For a call that never waits for anything: nobody has to wait for it either, so it is not counted.
    #[inline]
    pub fn look(&self) -> Result<(), Error> {
        match self.0.sign.load(Ordering::Relaxed) {
            OPEN => Ok(()),
            sign => self.refuse(sign).map(drop),
        }
    }

    #[inline(always)]
    fn count_in(&self) -> Result<Entry, Error> {
        self.0.crowd.come_in();
        match self.0.sign.load(Ordering::Acquire) {
            OPEN => Ok(Entry::Counted),
            sign => {
                self.0.count_out();
                self.refuse(sign)
            }
        }
    }

    #[cold]
    fn refuse(&self, sign: u8) -> Result<Entry, Error> {
        // Whoever is inside is counted already.
        if sign != SHUT && self.is_inside() { Ok(Entry::Inside) } else { Err(Error::ShuttingDown) }
    }

    /// Whether this task is inside, by [`pass_through`](Self::pass_through).
    fn is_inside(&self) -> bool {
        INSIDE.try_with(|inside| inside.contains(&self.id())).unwrap_or(false)
    }

    /// Until when whoever asks may wait for something: who is inside until all are cut off, anybody else until `closing`.
    pub fn patience<'a>(&'a self, closing: &'a CancellationToken) -> &'a CancellationToken {
        if self.is_inside() { &self.0.cut_off } else { closing }
    }

    /// Cancelled when whatever is still in flight is to be dropped.
    pub fn cut_off(&self) -> &CancellationToken {
        &self.0.cut_off
    }

    pub fn id(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// From now on nothing new comes in. How many are in flight. Takes a millisecond, unless it is closed already.
    pub fn close(&self) -> usize {
        self.put_up(CLOSING)
    }

    /// Cuts off whatever is still in flight. How many those are.
    pub fn shut(&self) -> usize {
        let left = self.put_up(SHUT);
        self.0.cut_off.cancel();
        left
    }

    fn put_up(&self, sign: u8) -> usize {
        if self.0.sign.fetch_max(sign, Ordering::SeqCst) == OPEN {
            // Once in the life of a client, and shorter than a task may keep its thread.
            std::thread::sleep(SEEN_BY_ALL);
        }
        self.0.crowd.inside()
    }

    /// When nothing is in flight. Only to be asked of a gate that is closed.
    pub async fn emptied(&self) {
        loop {
            let mut emptied = std::pin::pin!(self.0.emptied.notified());
            emptied.as_mut().enable();
            if self.0.crowd.inside() == 0 {
                return;
            }
            emptied.await;
        }
    }
}

enum Entry {
    Counted,
    /// Part of something that is counted.
    Inside,
}

impl GateState {
    #[inline]
    fn count_out(&self) {
        self.crowd.go_out();
        if self.sign.load(Ordering::Acquire) != OPEN {
            self.tell();
        }
    }

    #[cold]
    fn tell(&self) {
        // What this thread wrote is seen by whoever is woken.
        fence(Ordering::SeqCst);
        self.emptied.notify_waiters();
    }
}

/// Several calls in flight, as many as it has passes.
#[derive(Debug)]
#[must_use = "the calls count as in flight for as long as their passes are held"]
pub(crate) struct OwnedPasses {
    gate: Gate,
    count: u32,
}

impl OwnedPasses {
    /// None yet.
    pub fn new(gate: &Gate) -> Self {
        Self { gate: gate.clone(), count: 0 }
    }

    pub fn len(&self) -> u32 {
        self.count
    }

    /// For so many calls that begin, or for none.
    pub fn more(&mut self, calls: u32) -> u32 {
        self.gate.0.crowd.many_come_in(calls as usize);
        self.count += calls;
        if self.gate.0.sign.load(Ordering::Acquire) == OPEN {
            return calls;
        }
        self.less(calls);
        0
    }

    /// Up to so many are over. How many.
    pub fn less(&mut self, calls: u32) -> u32 {
        let calls = calls.min(self.count);
        self.count -= calls;
        if calls > 0 {
            self.gate.0.crowd.many_go_out(calls as usize);
            if self.gate.0.sign.load(Ordering::Acquire) != OPEN {
                self.gate.0.tell();
            }
        }
        calls
    }
}

impl Drop for OwnedPasses {
    fn drop(&mut self) {
        self.less(self.count);
    }
}

/// A call in flight.
#[derive(Debug)]
#[must_use = "the call counts as in flight for as long as its pass is held"]
pub(crate) struct Pass<'a>(Option<&'a GateState>);

impl Drop for Pass<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(gate) = self.0 {
            gate.count_out();
        }
    }
}

/// See [`Gate::enter_owned`].
#[derive(Debug)]
#[must_use = "the call counts as in flight for as long as its pass is held"]
#[allow(dead_code, reason = "for calls that are spawned")]
pub(crate) struct OwnedPass(Option<Arc<GateState>>);

impl Drop for OwnedPass {
    fn drop(&mut self) {
        if let Some(gate) = &self.0 {
            gate.count_out();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn who_came_in_is_counted_until_the_pass_is_dropped() {
        let gate = Gate::default();
        let (first, second) = (gate.enter().unwrap(), gate.enter_owned().unwrap());
        assert_eq!(gate.close(), 2);
        drop(first);
        assert_eq!(gate.close(), 1);
        drop(second);
        assert_eq!(gate.close(), 0);
    }

    #[test]
    fn several_passes_are_as_many_calls_and_a_closing_gate_gives_none() {
        let gate = Gate::default();
        let mut passes = OwnedPasses::new(&gate);
        assert_eq!((passes.more(5), passes.more(2)), (5, 2));
        assert_eq!((passes.less(3), passes.len()), (3, 4));
        assert_eq!(gate.close(), 4);
        assert_eq!((passes.more(1), passes.len()), (0, 4));
        assert_eq!(passes.less(9), 4);
        assert_eq!(gate.close(), 0);
        drop(passes);
        assert_eq!(gate.close(), 0);
    }

    #[tokio::test]
    async fn several_passes_empty_the_gate_when_the_last_is_given_back() {
        let gate = Gate::default();
        let mut passes = OwnedPasses::new(&gate);
        passes.more(2);
        gate.close();
        let waiting = tokio::spawn({
            let gate = gate.clone();
            async move { gate.emptied().await }
        });
        tokio::task::yield_now().await;
        passes.less(1);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(passes);
        tokio::time::timeout(std::time::Duration::from_secs(10), waiting).await.expect("it is emptied").unwrap();
    }

    #[tokio::test]
    async fn a_closing_gate_lets_in_only_who_is_inside_and_counts_them_once() {
        let gate = Gate::default();
        let other = Gate::default();
        let checked = gate.pass_through(|| {
            other.pass_through(|| async {
                assert_eq!(gate.close(), 1);
                let inner = gate.enter().expect("it is inside");
                assert_eq!(gate.close(), 1, "the inner call is part of the outer");
                drop(inner);
                assert_eq!(gate.close(), 1);
                let outside = {
                    let gate = gate.clone();
                    tokio::spawn(async move { gate.enter().err() })
                };
                assert_eq!(outside.await.unwrap(), Some(Error::ShuttingDown));
            })
        });
        checked.await.unwrap().unwrap();
        assert_eq!(gate.enter().err(), Some(Error::ShuttingDown));
        assert!(other.enter().is_ok(), "another client's gate is open");
    }

    #[tokio::test]
    async fn a_shut_gate_lets_in_nobody_and_drops_who_is_inside() {
        let gate = Gate::default();
        let inside = gate.pass_through(|| async {
            assert_eq!(gate.shut(), 1);
            assert_eq!(gate.enter().err(), Some(Error::ShuttingDown));
            std::future::pending::<()>().await;
        });
        assert_eq!(inside.await, Err(Error::ShuttingDown));
        assert_eq!(gate.shut(), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn nobody_comes_in_after_the_gate_was_seen_to_be_empty() {
        for _ in 0..200 {
            let gate = Gate::default();
            let is_empty = Arc::new(AtomicBool::new(false));
            let callers: Vec<_> = (0..3)
                .map(|_| {
                    let (gate, is_empty) = (gate.clone(), Arc::clone(&is_empty));
                    tokio::spawn(async move {
                        while let Ok(pass) = gate.enter() {
                            assert!(!is_empty.load(Ordering::SeqCst), "it was closed and empty before");
                            drop(pass);
                        }
                    })
                })
                .collect();
            tokio::task::yield_now().await;
            gate.close();
            let waited = tokio::time::timeout(std::time::Duration::from_secs(10), gate.emptied()).await;
            waited.expect("it is emptied");
            is_empty.store(true, Ordering::SeqCst);
            for caller in callers {
                caller.await.unwrap();
            }
        }
    }
}
