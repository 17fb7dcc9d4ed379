//! One breaker of this process: who may call, and what came of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::FutureExt;
use metrics::Counter;
use parking_lot::Mutex;
use resil_core::circuit_breaker::{Permit as ServerPermit, Report};
use resil_core::policy::breaker_baseline::Baseline;
use resil_wire::breaker::{Admit, Admitted, Counted, Options, ReportCall};
use resil_wire::command::{Command, Reply};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::finish::{Finishing, in_background};
use super::permit::{Permit, Way};
use super::sending::Sender;
use super::settings::{CheckedSettings, CountingMode};
use super::state::{Snapshot, State, Transition, admits_all};
use super::view::{Belief, Question, ReplyOf, StateReply, Tag, View};
use crate::backend::Backend;
use crate::backend::memory::Memory;
use crate::client::Client;
use crate::clock::Moment;
use crate::correlation;
use crate::error::Error;
use crate::health::Away;
use crate::limiter::{millis, span};
use crate::telemetry::{Event, Interest, VerdictMeters, emit};

pub(super) type Listener = Arc<dyn Fn(&Transition) + Send + Sync>;

pub(crate) struct Core {
    pub client: Client,
    pub name: Arc<str>,
    pub key: Box<[u8]>,
    /// Who this is to the server: no two breakers of any process are the same, so that none takes the other's numbers.
    pub caller: Box<[u8]>,
    pub(super) options: CheckedSettings,
    pub wire: Option<Options>,
    pub is_memory: bool,
    /// Where it is kept, if not where the client keeps everything: what is learned of a callee stays in this process.
    pub own: Option<Backend>,
    /// What is usual, of a breaker that is adaptive: its memory looks here.
    pub _baseline: Option<Arc<Mutex<Baseline>>>,
    /// How many outcomes are sent together.
    pub batch: u64,
    pub(super) view: View,
    /// What the unsent failures are about: sent along with the next batch that has any.
    pub about_failure: Mutex<Option<Arc<str>>>,
    pub(super) sender: tokio::sync::Mutex<Sender>,
    /// A task is sending, or about to.
    pub flushing: AtomicBool,
    pub hurry: Notify,
    /// Rung with `hurry` by what must not wait for its turn.
    pub urgent: Notify,
    /// One caller asks whether an open circuit is over.
    pub asking: AtomicBool,
    /// When it was last asked for admission: what the options were last sent with.
    pub admit_asked: Mutex<Option<Moment>>,
    /// Whether what the server publishes about it is listened to.
    pub is_listening: AtomicBool,
    /// Decides while the server is away; gone when it is back.
    pub local: ArcSwapOption<Memory>,
    pub listeners: Mutex<Vec<Listener>>,
    pub meters: VerdictMeters,
    pub opened: Counter,
    pub transitions: Counter,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Breaker").field("name", &self.name).field("view", &self.view).finish_non_exhaustive()
    }
}

impl Core {
    pub fn backend(&self) -> &Backend {
        self.own.as_ref().unwrap_or_else(|| self.client.backend())
    }

    /// May a call be made?
    pub async fn admit(self: &Arc<Self>) -> Result<Permit, Error> {
        match self.admit_now() {
            Some(admitted) => admitted,
            // On the heap: what most calls never need would make the future of every call large, and futures are moved.
            None => Box::pin(self.admit_later()).await,
        }
    }

    /// The reply, if it is known here.
    #[inline]
    pub fn admit_now(self: &Arc<Self>) -> Option<Result<Permit, Error>> {
        if self.options.mode == CountingMode::Batched
            && let Some((tag, started)) = self.view.admit(self.client.clock(), self.options.patch.slow.is_some())
        {
            return Some(Ok(self.permit(Way::Here(tag), started)));
        }
        match self.view.gate(self.client.clock().now()) {
            Belief::Open(retry_after) => Some(Err(self.open(retry_after))),
            Belief::OpenIsOver | Belief::Ask | Belief::Closed(_) => None,
        }
    }

    /// When it is not.
    pub async fn admit_later(self: &Arc<Self>) -> Result<Permit, Error> {
        if matches!(self.view.gate(self.client.clock().now()), Belief::OpenIsOver) {
            let Some(_asking) = ProbeQuestion::begin(self) else {
                return Err(self.open(Some(Duration::from_millis(1))));
            };
            return self.admit_by_asking().await;
        }
        self.admit_by_asking().await
    }

    async fn admit_by_asking(self: &Arc<Self>) -> Result<Permit, Error> {
        if self.options.mode == CountingMode::Batched {
            match self.settle().await {
                Ok(()) => {}
                Err(error) if error.says_away() => return self.admit_away(error),
                Err(error) => return Err(error),
            }
            let now = self.client.clock().now();
            match self.view.gate(now) {
                // What failed since then was begun before.
                Belief::Closed(tag) => return Ok(self.permit(Way::Here(tag), now)),
                Belief::Open(retry_after) => return Err(self.open(retry_after)),
                Belief::Ask | Belief::OpenIsOver => {}
            }
        }
        if self.is_memory {
            return self.ask_admission().await;
        }
        let core = Arc::clone(self);
        // Seen through, so that a probe nobody waits for any more is given back.
        Finishing::new(&self.client, async move { core.ask_admission().await }).await
    }

    pub(super) async fn ask_admission(self: &Arc<Self>) -> Result<Permit, Error> {
        let sent = self.client.clock().now();
        let question = self.view.question(sent);
        let admit = Command::BreakerAdmit(Admit { key: &self.key, caller: Some(&self.caller), options: self.wire });
        let admitted = match self.backend().call(&admit).await {
            Ok(Reply::Admitted(admitted)) => admitted,
            Ok(other) => return Err(Error::Internal(format!("an admission was answered {other:?}"))),
            Err(error) if error.says_away() => return self.admit_away(error),
            Err(error) => return Err(error),
        };
        *self.admit_asked.lock() = Some(sent);
        self.listen();
        let Admitted { permit, state, retry_after_ms, generation } = admitted;
        let tag = self.hear(StateReply { state, generation, retry_after_ms, from: ReplyOf::Admit }, question);
        let Some(permit) = permit else { return Err(self.open(millis(retry_after_ms))) };
        let way = match tag {
            Some(tag) if admits_all(state) && self.options.mode == CountingMode::Batched => Way::Here(tag),
            _ => Way::Server(permit),
        };
        Ok(self.permit(way, self.client.clock().now()))
    }

    /// From the first reply or listener on: what nobody here has asked for cannot have become untrue.
    pub(super) fn listen(self: &Arc<Self>) {
        if self.is_listening.load(Ordering::Relaxed) || self.is_listening.swap(true, Ordering::Relaxed) {
            return;
        }
        match self.backend() {
            Backend::Memory(memory) => {
                let (core, runtime) = (Arc::downgrade(self), Handle::try_current().ok());
                let hear = move |_: &_| core.upgrade().map(|core| core.was_changed(runtime.clone())).is_some();
                memory.hear_changes(&self.key, Arc::new(hear));
            }
            #[cfg(feature = "redis")]
            Backend::Redis(_) => self.client.listen_to(self),
            _ => {}
        }
    }

    /// A listener was added: it hears of what changes from now on, also if this process makes no call.
    pub(super) fn add_listener(self: &Arc<Self>, listener: Listener) {
        self.listeners.lock().push(listener);
        self.listen();
        // A server is asked once it is subscribed to; memory replies at once.
        if self.is_memory && self.view.state().is_none() {
            let _ = self.look().now_or_never();
        }
    }

    async fn ask_state(&self) -> Result<Snapshot, Error> {
        match self.backend().call(&Command::BreakerState(&self.key)).await? {
            Reply::Map(map) => Snapshot::read(&map),
            other => Err(Error::Internal(format!("the state of a breaker was answered {other:?}"))),
        }
    }

    /// Asks where it stands, which is then known here, too. It is asked on the connection that all calls go over, so whatever was
    /// answered before is read before.
    pub(super) async fn look(&self) -> Result<Snapshot, Error> {
        let question = self.view.question(self.client.clock().now());
        let snapshot = self.ask_state().await?;
        let Snapshot { state, generation, retry_after, .. } = snapshot;
        let retry_after_ms = retry_after.map_or(-1, |wait| i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
        self.hear(StateReply { state, generation, retry_after_ms, from: ReplyOf::State }, question);
        Ok(snapshot)
    }

    /// The circuit was changed, or may have been: what this process believes is what is said now. It is asked on `runtime`, where
    /// it is used, because listeners of its users may be called.
    pub fn was_changed(self: Arc<Self>, runtime: Option<Handle>) {
        // At once, also if the runtime has ended: then the next call asks.
        self.view.ask();
        if let Some(runtime) = runtime.or_else(|| self.client.background()) {
            runtime.spawn(async move {
                let looked = self.look().await;
                // If it could not be asked, the next call has to.
                if looked.is_err() {
                    self.view.ask();
                }
            });
        }
    }

    pub(super) fn admit_is_older_than(&self, age: Duration) -> bool {
        let now = self.client.clock().now();
        self.admit_asked.lock().is_none_or(|at| now.saturating_sub(at) >= age)
    }

    fn admit_away(self: &Arc<Self>, error: Error) -> Result<Permit, Error> {
        self.view.ask();
        let now = self.client.clock().now();
        match self.options.when_away {
            Away::Open => Ok(self.permit(Way::Uncounted, now)),
            Away::Closed => Err(error.as_unavailable()),
            Away::Local => {
                let admit = Admit { key: &self.key, caller: Some(&self.caller), options: self.wire };
                match self.local().call(&Command::BreakerAdmit(admit))? {
                    Reply::Admitted(Admitted { permit: Some(permit), .. }) => Ok(self.permit(Way::Local(permit), now)),
                    Reply::Admitted(refused) => Err(self.open(millis(refused.retry_after_ms))),
                    other => Err(Error::Internal(format!("an admission was answered {other:?}"))),
                }
            }
        }
    }

    fn local(&self) -> Arc<Memory> {
        if let Some(memory) = &*self.local.load() {
            return Arc::clone(memory);
        }
        let fresh = Arc::new(Memory::new(self.client.clock().clone()));
        let before = self.local.compare_and_swap(&None::<Arc<Memory>>, Some(Arc::clone(&fresh)));
        before.as_ref().map_or(fresh, Arc::clone)
    }

    fn permit(self: &Arc<Self>, way: Way, started: Moment) -> Permit {
        self.meters.granted.increment(1);
        if matches!(way, Way::Local(_) | Way::Uncounted) {
            self.meters.locally.increment(1);
        }
        Permit::new(Arc::clone(self), way, started)
    }

    fn open(&self, retry_after: Option<Duration>) -> Error {
        self.meters.denied.increment(1);
        Error::CircuitOpen { name: Arc::clone(&self.name), retry_after }
    }

    /// Reports to the server what a call under its permit came to; seen through even if the caller stops waiting.
    pub(super) async fn report(self: &Arc<Self>, permit: ServerPermit, report: Report, took: Duration) {
        // Here, where the call was made: what is seen through may go on elsewhere.
        let about = correlation::current();
        if self.is_memory {
            return self.report_now(permit, report, took, about).await;
        }
        let core = Arc::clone(self);
        Finishing::new(&self.client, async move { core.report_now(permit, report, took, about).await }).await;
    }

    /// The same for a caller that cannot wait.
    pub(super) fn report_in_background(self: &Arc<Self>, permit: ServerPermit, report: Report, took: Duration) {
        let about = correlation::current();
        if self.is_memory {
            // Memory replies at once.
            let _ = self.report_now(permit, report, took, about).now_or_never();
            return;
        }
        let core = Arc::clone(self);
        in_background(&self.client, async move {
            core.report_now(permit, report, took, about).await;
        });
    }

    async fn report_now(&self, permit: ServerPermit, report: Report, took: Duration, about: Option<Arc<str>>) {
        let question = self.view.question(self.client.clock().now());
        let call = self.report_call(permit, report, took, about.as_deref());
        // A report that is lost costs a count, or a probe's place until its lease ends: nothing is done about it.
        if let Ok(Reply::Counted(counted)) = self.backend().call(&call).await {
            let Counted { state, generation, retry_after_ms, .. } = counted;
            self.hear(StateReply { state, generation, retry_after_ms, from: ReplyOf::Other }, question);
        }
    }

    pub(super) fn report_locally(&self, permit: ServerPermit, report: Report, took: Duration) {
        if let Some(memory) = &*self.local.load() {
            let _ = memory.call(&self.report_call(permit, report, took, None));
        }
    }

    fn report_call<'a>(
        &'a self,
        permit: ServerPermit,
        report: Report,
        took: Duration,
        about: Option<&'a str>,
    ) -> Command<'a> {
        let (duration, correlation) = (Some(span(took)), about.map(str::as_bytes));
        Command::BreakerReport(ReportCall { key: &self.key, permit: Some(permit), report, duration, correlation })
    }

    /// The server said something: it is there, and what it says holds.
    pub(super) fn hear(&self, state_reply: StateReply, question: Question) -> Option<Tag> {
        if self.local.load().is_some() {
            self.local.store(None);
        }
        let heard = self.view.hear(state_reply, question, self.options.trust);
        if let Some(transition) = heard.transition {
            self.tell(&transition);
        }
        heard.tag
    }

    fn tell(&self, transition: &Transition) {
        self.transitions.increment(1);
        if transition.new == State::Open {
            self.opened.increment(1);
        }
        let Transition { previous, new, generation } = *transition;
        let home = self.client.home();
        emit(Interest::Happenings, home, || Event::Transition {
            name: Arc::clone(&self.name),
            previous,
            new,
            generation,
        });
        let (previous, new) = (transition.previous.text(), transition.new.text());
        tracing::info!(
            name = &*self.name,
            previous,
            new,
            generation = transition.generation,
            "resil.breaker.transition"
        );
        let listeners = self.listeners.lock().clone();
        for listener in listeners {
            // A listener's fault is not the caller's.
            let notified = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| listener(transition)));
            if notified.is_err() {
                tracing::error!(name = &*self.name, "a listener of the breaker panicked");
            }
        }
    }

    pub(super) fn is_memory(backend: &Backend) -> bool {
        matches!(backend, Backend::Memory(_))
    }
}

/// The one who asks whether an open circuit is over; the next may when it goes.
struct ProbeQuestion<'a>(&'a Core);

impl<'a> ProbeQuestion<'a> {
    fn begin(core: &'a Core) -> Option<Self> {
        // Not `then_some`: one that is made and dropped would let the next in.
        (!core.asking.swap(true, Ordering::SeqCst)).then(|| Self(core))
    }
}

impl Drop for ProbeQuestion<'_> {
    fn drop(&mut self) {
        self.0.asking.store(false, Ordering::SeqCst);
    }
}
