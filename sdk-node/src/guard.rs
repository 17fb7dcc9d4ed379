//! Whatever a function can be called through: one policy, or several around each other, outermost first.
//!
//! Each layer is a handle of the SDK. A call asks the outermost one, whose operation is the next layer; the operation of the
//! last layer is an attempt: the user's function.

use std::cell::RefCell;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt;
use napi_derive::napi;
use parking_lot::Mutex;
use resil::lock::{Held, Lock};
use resil::policies::FollowedPolicy;
use resil::policy::{
    CallSettings, Fallback, Hedge, LocalBulkhead, Policy, Retry, Timeout, WatchedPolicies, classified, judged, settled,
};
use resil::shared_bulkhead::SharedBulkhead;
use resil::{Error, Failure};

use crate::convert::settings;
use crate::executor::attempt::{Attempt, Call, Detail, Done, Settled};
use crate::executor::{Outcome, Word, begin};
use crate::thrown::Thrown;

#[derive(Clone)]
pub enum Layer {
    Retry(Retry),
    Timeout(Timeout),
    Hedge(Hedge),
    Bulkhead(LocalBulkhead),
    SharedBulkhead(SharedBulkhead),
    Lock(Lock),
    /// A policy of nothing but a limiter or a breaker: a shutdown waits for its calls, and drops them at its deadline, as those of every policy.
    Limiter(Policy),
    Breaker(Policy),
    Policy(PolicySource),
    Fallback,
}

/// Where the policy of a call comes from.
#[derive(Clone)]
pub enum PolicySource {
    Made(Policy),
    Followed(FollowedPolicy),
    /// Of a file that is watched: the last one of its name that was there.
    Watched(WatchedPolicies, Arc<Mutex<Policy>>),
}

impl PolicySource {
    pub fn now(&self) -> Policy {
        match self {
            Self::Made(policy) => policy.clone(),
            Self::Followed(policy) => policy.now(),
            Self::Watched(watched, last) => {
                let mut last = last.lock();
                if let Ok(policy) = watched.policy(last.name()) {
                    *last = policy;
                }
                last.clone()
            }
        }
    }

    /// One that may change may get a timeout.
    fn interrupts(&self) -> bool {
        if let Self::Made(policy) = self { policy.interrupts() } else { true }
    }
}

impl Layer {
    /// Whether it may end an attempt that is running, or has to know when it is over.
    fn interrupts(&self) -> bool {
        match self {
            Self::Timeout(_) | Self::Hedge(_) | Self::SharedBulkhead(_) | Self::Lock(_) => true,
            Self::Retry(_) | Self::Bulkhead(_) | Self::Limiter(_) | Self::Breaker(_) | Self::Fallback => false,
            Self::Policy(policy) => policy.interrupts(),
        }
    }
}

#[derive(Clone)]
struct Layers {
    all: Arc<[Layer]>,
    interrupts: bool,
    /// The settings of a call that has none of its own.
    plain: Arc<CallSettings<'static>>,
}

thread_local! {
    /// The layers of every guard of this thread, by number: Node-API takes a number four times faster than an object.
    static GUARDS: RefCell<Vec<Option<Layers>>> = const { RefCell::new(Vec::new()) };
}

/// Layers under a number, which is free again when this is dropped.
#[napi]
pub struct Guard {
    number: usize,
    all: Arc<[Layer]>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let freed = GUARDS.try_with(|guards| guards.borrow_mut().get_mut(self.number).and_then(Option::take));
        // Not while the table is borrowed: its last handle may end anything.
        drop(freed);
    }
}

impl Guard {
    pub fn of(layers: Vec<Layer>) -> Self {
        let interrupts = layers.iter().any(Layer::interrupts);
        let all: Arc<[Layer]> = layers.into();
        let layers = Some(Layers { all: Arc::clone(&all), interrupts, plain: Arc::default() });
        let number = GUARDS.with_borrow_mut(|guards| match guards.iter().position(Option::is_none) {
            Some(free) => {
                guards[free] = layers;
                free
            }
            None => {
                guards.push(layers);
                guards.len() - 1
            }
        });
        Self { number, all }
    }

    pub fn first(&self) -> Option<&Layer> {
        self.all.first()
    }
}

#[napi]
impl Guard {
    /// These around each other, outermost first.
    #[napi(factory)]
    pub fn wrap(guards: Vec<&Guard>) -> Self {
        Self::of(guards.iter().flat_map(|guard| guard.all.iter().cloned()).collect())
    }

    #[napi(getter)]
    pub fn number(&self) -> u32 {
        self.number as u32
    }
}

/// Begins a call through the guard of this number. `said`: the settings of this call, as JSON.
#[napi]
pub fn begin_call(guard: u32, said: Option<String>) -> napi::Result<Word> {
    let layers = GUARDS.with_borrow(|guards| guards.get(guard as usize).cloned().flatten());
    let layers = layers.ok_or_else(|| napi::Error::from_reason("there is no such guard"))?;
    let own = said.map(|said| settings::<CallSettings<'static>>(&said));
    let interrupts = layers.interrupts || own.is_some();
    begin(interrupts, |call| match own.transpose() {
        Ok(own) => {
            let settled = nested(layers.all, 0, call, own.map_or(layers.plain, Arc::new), None);
            Box::pin(async move { settled.await.into() })
        }
        Err(error) => Box::pin(ready(Outcome::Failed(Failure::Resil(error)))),
    })
}

type Boxed = Pin<Box<dyn Future<Output = Settled>>>;

fn attempt(call: Call, held: Option<&Held>) -> Attempt {
    match held {
        None => call.attempt(None),
        Some(held) => call
            .attempt(Some(Detail { fence: held.fence(), held: Some(held.clone()), ..Detail::default() }))
            .warned_by(held.until_lost()),
    }
}

/// The layers from `index` on.
fn nested(
    layers: Arc<[Layer]>,
    index: usize,
    call: Call,
    settings: Arc<CallSettings<'static>>,
    held: Option<Held>,
) -> Boxed {
    let Some(layer) = layers.get(index).cloned() else { return Box::pin(attempt(call, held.as_ref())) };
    let inside = Arc::clone(&settings);
    enclose(layer, index, call, settings, move |inner| {
        nested(Arc::clone(&layers), index + 1, call, Arc::clone(&inside), inner.or_else(|| held.clone()))
    })
}

/// One layer around `operation`, which gets the grant of a lock.
fn enclose(
    layer: Layer,
    index: usize,
    call: Call,
    settings: Arc<CallSettings<'static>>,
    operation: impl Fn(Option<Held>) -> Boxed + 'static,
) -> Boxed {
    let classify = move |thrown: &Thrown| thrown.class(index);
    let unfit = move |done: &Done| done.unfit.get(index).copied().flatten();
    match layer {
        Layer::Retry(retry) => Box::pin(async move {
            let attempt = || operation(None).map(|ended| judged(unfit, ended));
            settled(retry.around(classified(classify), attempt).await)
        }),
        Layer::Bulkhead(bulkhead) => Box::pin(async move {
            match &settings.partition {
                None => bulkhead.around(|| operation(None)).await,
                Some(name) => bulkhead.partition(name)?.around(|| operation(None)).await,
            }
        }),
        Layer::Timeout(timeout) => Box::pin(async move {
            let settled = timeout.around(|| operation(None)).await;
            if let Err(Failure::Resil(error @ Error::Timeout { .. })) = &settled {
                call.explain_aborts(error);
            }
            settled
        }),
        Layer::Hedge(hedge) => Box::pin(async move { hedge.around(classify, || operation(None)).await }),
        Layer::Limiter(limiter) => Box::pin(async move {
            let CallSettings { key, cost, .. } = settings.by_ref();
            let own = CallSettings { key, cost, ..CallSettings::new() };
            limiter.around_with(own, classify, || operation(None)).await
        }),
        Layer::SharedBulkhead(bulkhead) => {
            Box::pin(async move { bulkhead.run(|| operation(None)).await.map_err(flat) })
        }
        Layer::Lock(lock) => Box::pin(async move { lock.with_lock(|held| operation(Some(held))).await.map_err(flat) }),
        Layer::Breaker(breaker) => Box::pin(async move {
            let attempt = || operation(None).map(|ended| judged(unfit, ended));
            settled(breaker.around_with(CallSettings::new(), classified(classify), attempt).await)
        }),
        Layer::Policy(policy) => {
            let policy = policy.now();
            Box::pin(async move {
                let attempt = || operation(None).map(|ended| judged(unfit, ended));
                settled(policy.around_with(settings.by_ref(), classified(classify), attempt).await)
            })
        }
        Layer::Fallback => Box::pin(async move {
            let failed = match operation(None).await {
                Ok(done) => return Ok(done),
                Err(failed) => failed,
            };
            let instead = Fallback::<Done, Thrown>::async_function(move |failure| {
                let (failure, layer) = (Some(Box::new(failure)), index as u32);
                call.attempt(Some(Detail { failure, layer, ..Detail::default() }))
            });
            instead.around(|| ready(Err(failed))).await
        }),
    }
}

/// A failure whose own error is a failure: one failure.
pub fn flat<E>(failure: Failure<Failure<E>>) -> Failure<E> {
    match failure {
        Failure::Inner(failure) => failure,
        Failure::Resil(error) => Failure::Resil(error),
        Failure::Exhausted { attempts, last } => Failure::Exhausted { attempts, last: Box::new(flat(*last)) },
    }
}
