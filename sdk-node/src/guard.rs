//! Whatever a function can be called through: one policy, or several around each other, outermost first.
//!
//! Each layer is a handle of the SDK. A call clones the handles and asks the outermost, whose operation is the next layer,
//! whose operation in the end is an attempt: the user's function.

use std::cell::{Cell, RefCell};
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;

use napi::bindgen_prelude::Env;
use napi_derive::napi;
use resil::Failure;
use resil::breaker::Breaker;
use resil::limiter::Limiter;
use resil::lock::{Held, Lock};
use resil::policy::{Fallback, Hedge, LocalBulkhead, Policy, Retry, Timeout};
use resil::settings::CallSettings;
use resil::shared_bulkhead::SharedBulkhead;

use crate::convert::{now, settings};
use crate::executor::desk::{Attempt, Desk, Detail, Done, Settled};
use crate::executor::{Running, Word, begin};
use crate::loans::{MAX_LAYERS, Pace, close_loan};
use crate::thrown::Thrown;

#[derive(Clone)]
pub enum Layer {
    Retry(Retry),
    Timeout(Timeout),
    Hedge(Hedge),
    Bulkhead(LocalBulkhead),
    SharedBulkhead(SharedBulkhead),
    Breaker(Breaker),
    Limiter(Limiter),
    Lock(Lock),
    Policy(Policy),
    Fallback,
}

impl Layer {
    /// Whether it may end an attempt that is running, or has to be told when it is over.
    pub fn interrupts(&self) -> bool {
        match self {
            Self::Timeout(_) | Self::Hedge(_) | Self::SharedBulkhead(_) | Self::Lock(_) | Self::Policy(_) => true,
            Self::Retry(_) | Self::Bulkhead(_) | Self::Breaker(_) | Self::Limiter(_) | Self::Fallback => false,
        }
    }
}

pub struct Layers {
    pub all: Arc<[Layer]>,
    /// Whether a call may take the short way: see `quick`.
    pub may_be_quick: bool,
    /// The loan that JavaScript counts for: see `loans`.
    pub loan: Cell<Option<u32>>,
    pub pace: Cell<Pace>,
    interrupts: bool,
    /// Of calls of which nothing particular is said.
    nothing: Arc<CallSettings>,
}

thread_local! {
    /// The guards of this thread, by number: a number is the cheapest thing that JavaScript can hand over.
    static GUARDS: RefCell<Guards> = const { RefCell::new(Guards { all: Vec::new(), free: Vec::new() }) };
}

struct Guards {
    all: Vec<Option<Layers>>,
    free: Vec<u32>,
}

/// Layers under a number. The number is free again when this is gone.
#[napi]
pub struct Guard {
    number: u32,
    all: Arc<[Layer]>,
    interrupts: bool,
}

impl Guard {
    pub fn of(layers: Vec<Layer>) -> Self {
        let interrupts = layers.iter().any(Layer::interrupts);
        let all: Arc<[Layer]> = layers.into();
        let (may_be_quick, nothing) = (may_be_quick(&all), Arc::default());
        let (loan, pace) = (Cell::new(None), Cell::new(Pace::new()));
        let layers = Layers { all: Arc::clone(&all), may_be_quick, loan, pace, interrupts, nothing };
        let number = GUARDS.with_borrow_mut(|guards| match guards.free.pop() {
            Some(free) => {
                guards.all[free as usize] = Some(layers);
                free
            }
            None => {
                guards.all.push(Some(layers));
                (guards.all.len() - 1) as u32
            }
        });
        Self { number, all, interrupts }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let freed = GUARDS.try_with(|guards| {
            let mut guards = guards.borrow_mut();
            guards.free.push(self.number);
            guards.all.get_mut(self.number as usize).and_then(Option::take)
        });
        // Not while the table is borrowed: with its last handle anything may end.
        if let Ok(Some(layers)) = freed
            && let Some(key) = layers.loan.get()
        {
            close_loan(key);
        }
    }
}

impl Guard {
    pub fn first(&self) -> Option<&Layer> {
        self.all.first()
    }
}

#[napi]
impl Guard {
    #[napi(getter)]
    pub fn number(&self) -> u32 {
        self.number
    }

    #[napi(getter)]
    pub fn interrupts(&self) -> bool {
        self.interrupts
    }

    /// Whether calls may take the short way.
    #[napi(getter)]
    pub fn is_quick(&self) -> bool {
        may_be_quick(&self.all)
    }

    /// Whether one of the layers is a timeout.
    #[napi(getter)]
    pub fn is_timed(&self) -> bool {
        self.all.iter().any(|layer| matches!(layer, Layer::Timeout(_)))
    }

    /// These around each other, outermost first.
    #[napi(factory)]
    pub fn wrap(guards: Vec<&Guard>) -> Self {
        Self::of(guards.iter().flat_map(|guard| guard.all.iter().cloned()).collect())
    }
}

fn find(number: u32) -> napi::Result<(Arc<[Layer]>, bool, Arc<CallSettings>)> {
    let found = GUARDS.with_borrow(|guards| {
        let layers = guards.all.get(number as usize)?.as_ref()?;
        Some((Arc::clone(&layers.all), layers.interrupts, Arc::clone(&layers.nothing)))
    });
    found.ok_or_else(|| napi::Error::from_reason("there is no such guard"))
}

/// A retry, outermost if there is one, and what can say yes at once or is asked only when it is late. A retry that counts its
/// time needs to be there from the beginning.
fn may_be_quick(layers: &[Layer]) -> bool {
    let is_quick = |(index, layer): (usize, &Layer)| match layer {
        Layer::Retry(retry) => index == 0 && retry.settings().max_elapsed.is_none(),
        Layer::Breaker(_) | Layer::Bulkhead(_) | Layer::Timeout(_) => true,
        _ => false,
    };
    layers.len() <= MAX_LAYERS && layers.iter().enumerate().all(is_quick)
}

/// The layers of this number, for a moment.
pub fn with_layers<R>(number: u32, look: impl FnOnce(&Layers) -> R) -> napi::Result<R> {
    let looked = GUARDS.with_borrow(|guards| guards.all.get(number as usize)?.as_ref().map(look));
    looked.ok_or_else(|| napi::Error::from_reason("there is no such guard"))
}

/// Goes on with a retry whose first attempt was made already, through all layers, and failed.
pub fn begin_after_failure(layers: Arc<[Layer]>, failure: Failure<Thrown>) -> napi::Result<Word> {
    begin(layers.iter().any(Layer::interrupts), |desk| {
        desk.skip_first();
        let (within, first) = (Arc::clone(&desk), Cell::new(Some(failure)));
        let Some(retry) = layers.first().cloned() else { return Running::Attempts(Box::pin(desk.attempt())) };
        let nothing: Arc<CallSettings> = Arc::default();
        let particular = Arc::clone(&nothing);
        let operation = move |_| match first.take() {
            Some(failure) => Box::pin(ready(Err(failure))) as Boxed,
            None => nested(Arc::clone(&layers), 1, Arc::clone(&within), Arc::clone(&nothing), None),
        };
        Running::Attempts(enclose(retry, 0, desk, particular, operation))
    })
}

/// Begins a call through the guard of this number.
pub fn begin_call(number: u32) -> napi::Result<Word> {
    let (layers, interrupts, nothing) = find(number)?;
    begin(interrupts, |desk| Running::Attempts(start(layers, desk, nothing)))
}

/// The same with what is particular to this call, as JSON.
#[napi]
pub fn begin_call_with(env: Env, number: u32, said: String) -> napi::Result<Word> {
    let particular: CallSettings = now(&env, settings(&said))?;
    let (layers, interrupts, _) = find(number)?;
    begin(interrupts, |desk| Running::Attempts(start(layers, desk, Arc::new(particular))))
}

type Boxed = Pin<Box<dyn Future<Output = Settled>>>;

fn start(layers: Arc<[Layer]>, desk: Arc<Desk>, particular: Arc<CallSettings>) -> Boxed {
    match &*layers {
        // The usual one: nothing in between.
        [only] => {
            let attempts = Arc::clone(&desk);
            enclose(only.clone(), 0, desk, particular, move |held| attempt(&attempts, held.as_ref()))
        }
        _ => nested(layers, 0, desk, particular, None),
    }
}

fn attempt(desk: &Arc<Desk>, held: Option<&Held>) -> Attempt {
    match held {
        None => desk.attempt(),
        Some(held) => desk
            .attempt_with(Detail { fence: held.fence(), held: Some(held.clone()), ..Detail::default() })
            .warned_by(held.until_lost()),
    }
}

/// The layers from `index` on.
fn nested(
    layers: Arc<[Layer]>,
    index: usize,
    desk: Arc<Desk>,
    particular: Arc<CallSettings>,
    held: Option<Held>,
) -> Boxed {
    let Some(layer) = layers.get(index).cloned() else { return Box::pin(attempt(&desk, held.as_ref())) };
    let (within, inside) = (Arc::clone(&desk), Arc::clone(&particular));
    enclose(layer, index, desk, particular, move |inner| {
        nested(Arc::clone(&layers), index + 1, Arc::clone(&within), Arc::clone(&inside), inner.or_else(|| held.clone()))
    })
}

/// One layer around `operation`, which is told what a lock holds.
fn enclose<Fut>(
    layer: Layer,
    index: usize,
    desk: Arc<Desk>,
    particular: Arc<CallSettings>,
    operation: impl Fn(Option<Held>) -> Fut + 'static,
) -> Boxed
where
    Fut: Future<Output = Settled> + 'static,
{
    let classify = move |thrown: &Thrown| thrown.class(index);
    match layer {
        Layer::Breaker(breaker) => Box::pin(async move { breaker.around(classify, || operation(None)).await }),
        Layer::Retry(retry) => Box::pin(async move { retry.around(classify, || operation(None)).await }),
        Layer::Bulkhead(bulkhead) => Box::pin(async move {
            match &particular.partition {
                None => bulkhead.around(|| operation(None)).await,
                Some(name) => bulkhead.partition(name)?.around(|| operation(None)).await,
            }
        }),
        Layer::Timeout(timeout) => Box::pin(async move { timeout.around(|| operation(None)).await }),
        Layer::Hedge(hedge) => Box::pin(async move { hedge.around(classify, || operation(None)).await }),
        Layer::Limiter(limiter) => Box::pin(async move {
            let key = particular.key.as_deref().unwrap_or(limiter.name());
            limiter.acquire_n(key, particular.cost.unwrap_or(1)).await?;
            operation(None).await
        }),
        Layer::SharedBulkhead(bulkhead) => {
            Box::pin(async move { bulkhead.run(|| operation(None)).await.map_err(flat) })
        }
        Layer::Lock(lock) => Box::pin(async move { lock.with_lock(|held| operation(Some(held))).await.map_err(flat) }),
        Layer::Policy(policy) => {
            Box::pin(async move { policy.around_with(particular.options(), classify, || operation(None)).await })
        }
        Layer::Fallback => Box::pin(async move {
            let failed = match operation(None).await {
                Ok(done) => return Ok(done),
                Err(failure) => failure,
            };
            let layer = index as u32;
            let instead = Fallback::<Done, Thrown>::async_function(move |failure| {
                desk.attempt_with(Detail { failure: Some(Box::new(failure)), layer, ..Detail::default() })
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
