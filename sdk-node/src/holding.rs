//! Locks, shared bulkheads, and what is held of them.

use std::sync::Arc;
use std::time::Duration;

use napi::bindgen_prelude::{BigInt, Env, Object};
use napi_derive::napi;
use parking_lot::Mutex;
use resil::Error;
use resil::lock::{self, Released};
use resil::settings::{LockSettings, SharedBulkheadSettings};
use resil::shared_bulkhead;
use tokio::task::AbortHandle;

use crate::client::Client;
use crate::convert::{bigint, millis, now, number, optional_span, ours, settings, shown, span};
use crate::errors::parts;
use crate::executor::mailbox::{Event, Letter};
use crate::executor::{Word, mailbox};
use crate::guard::{Guard, Layer};

#[napi]
pub struct Lock(lock::Lock);

#[napi]
pub struct SharedBulkhead(shared_bulkhead::SharedBulkhead);

#[napi]
impl Client {
    #[napi]
    pub fn lock(&self, env: Env, name: String, said: String) -> napi::Result<Lock> {
        now(&env, settings::<LockSettings>(&said).and_then(|settings| settings.lock(&self.0, &name))).map(Lock)
    }

    #[napi]
    pub fn shared_bulkhead(&self, env: Env, name: String, said: String) -> napi::Result<SharedBulkhead> {
        let make = || settings::<SharedBulkheadSettings>(&said)?.shared_bulkhead(&self.0, &name);
        now(&env, make()).map(SharedBulkhead)
    }
}

#[napi]
impl Lock {
    #[napi]
    pub fn guard(&self) -> Guard {
        Guard::of(vec![Layer::Lock(self.0.clone())])
    }

    /// `wait`: the JSON of a span; not there: as the lock has it.
    #[napi]
    pub fn acquire(&self, env: Env, wait: Option<String>) -> napi::Result<Word> {
        let wait = now(&env, optional_span("wait", wait.as_deref()))?;
        let lock = self.0.clone();
        ours(async move {
            match wait {
                None => lock.acquire().await.map(HeldLock::new),
                Some(wait) => lock.acquire_within(wait).await.map(HeldLock::new),
            }
        })
    }

    #[napi]
    pub fn until_acquired(&self) -> napi::Result<Word> {
        let lock = self.0.clone();
        ours(async move { lock.until_acquired().await.map(HeldLock::new) })
    }

    /// As JSON.
    #[napi]
    pub fn info(&self) -> napi::Result<Word> {
        let lock = self.0.clone();
        ours(async move { shown(&lock.info().await?) })
    }

    #[napi]
    pub fn break_lock(&self, actor: String, reason: String) -> napi::Result<Word> {
        let lock = self.0.clone();
        ours(async move { lock.break_lock(&actor, &reason).await.map(|holders| holders as f64) })
    }

    #[napi]
    pub fn check(&self, env: Env, owner: String, fence: Option<BigInt>) -> napi::Result<Word> {
        let fence = now(&env, fence.as_ref().map(|fence| number("fence", fence)).transpose())?;
        let lock = self.0.clone();
        ours(async move { lock.check(&owner, fence).await })
    }
}

#[napi]
impl SharedBulkhead {
    #[napi]
    pub fn guard(&self) -> Guard {
        Guard::of(vec![Layer::SharedBulkhead(self.0.clone())])
    }

    #[napi]
    pub fn enter(&self, env: Env, wait: Option<String>) -> napi::Result<Word> {
        let wait = now(&env, optional_span("wait", wait.as_deref()))?;
        let bulkhead = self.0.clone();
        ours(async move {
            match wait {
                None => bulkhead.enter().await.map(HeldPlace::new),
                Some(wait) => bulkhead.enter_within(wait).await.map(HeldPlace::new),
            }
        })
    }

    /// As JSON.
    #[napi]
    pub fn info(&self) -> napi::Result<Word> {
        let bulkhead = self.0.clone();
        ours(async move { shown(&bulkhead.info().await?) })
    }
}

/// What is held, as those who work under it see it, and the task that watches it.
#[napi]
pub struct Held(pub(crate) lock::Held, Mutex<Option<AbortHandle>>);

impl Held {
    pub fn of(held: lock::Held) -> Self {
        Self(held, Mutex::default())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.unwatch();
    }
}

#[napi]
impl Held {
    #[napi(getter)]
    pub fn fence(&self) -> Option<BigInt> {
        self.0.fence().map(bigint)
    }

    #[napi(getter)]
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    #[napi(getter)]
    pub fn remaining_ms(&self) -> f64 {
        millis(self.0.remaining())
    }

    #[napi(getter)]
    pub fn owner(&self) -> String {
        self.0.owner()
    }

    #[napi(getter)]
    pub fn is_unprotected(&self) -> bool {
        self.0.is_unprotected()
    }

    #[napi]
    pub fn ensure(&self, env: Env) -> napi::Result<()> {
        now(&env, self.0.ensure())
    }

    /// The parts of the error, if it is lost by now.
    #[napi]
    pub fn loss<'env>(&self, env: &'env Env) -> napi::Result<Option<Object<'env>>> {
        self.0.loss().map(|error| parts(env, &error)).transpose()
    }

    /// When it is lost, that is an event of this number. The watch ends with `unwatch`, or when this is collected: what was
    /// released is never lost, so that the watch would not end by itself.
    #[napi]
    pub fn watch(&self, number: u32) -> napi::Result<()> {
        let (mailbox, held) = (mailbox()?, self.0.clone());
        let Some(runtime) = crate::runtime::runtime() else { return Ok(()) };
        let task = runtime.spawn(async move {
            held.lost().cancelled().await;
            if let Some(error) = held.loss() {
                mailbox.post(Letter::Event(number, Event::Lost(Box::new(error))));
            }
        });
        if let Some(before) = self.1.lock().replace(task.abort_handle()) {
            before.abort();
        }
        Ok(())
    }

    #[napi]
    pub fn unwatch(&self) {
        if let Some(task) = self.1.lock().take() {
            task.abort();
        }
    }
}

#[napi]
pub struct HeldLock {
    held: lock::Held,
    /// `None` once it was let go.
    guard: Mutex<Option<Arc<lock::LockGuard>>>,
}

impl HeldLock {
    fn new(guard: lock::LockGuard) -> Self {
        Self { held: guard.held(), guard: Mutex::new(Some(Arc::new(guard))) }
    }

    fn guard(&self) -> Result<Arc<lock::LockGuard>, Error> {
        self.guard.lock().clone().ok_or_else(released)
    }
}

fn released() -> Error {
    Error::InvalidArgument("it was released before".to_owned())
}

#[napi]
impl HeldLock {
    #[napi]
    pub fn held(&self) -> Held {
        Held::of(self.held.clone())
    }

    #[napi]
    pub fn extend(&self, env: Env, lease: String) -> napi::Result<Word> {
        let lease: Duration = now(&env, span("lease", &lease))?;
        let guard = now(&env, self.guard())?;
        ours(async move { guard.extend(lease).await })
    }

    #[napi]
    pub fn check(&self, env: Env) -> napi::Result<Word> {
        let guard = now(&env, self.guard())?;
        ours(async move { guard.check().await })
    }

    #[napi(getter)]
    pub fn is_released(&self) -> bool {
        self.guard.lock().is_none()
    }

    /// How long it was held, in milliseconds.
    #[napi]
    pub fn release(&self, env: Env) -> napi::Result<Word> {
        let taken = self.guard.lock().take();
        let guard = match taken.map(Arc::try_unwrap) {
            Some(Ok(guard)) => Ok(guard),
            None => Err(released()),
            Some(Err(busy)) => {
                *self.guard.lock() = Some(busy);
                Err(Error::InvalidArgument("it is being extended or checked: release it after that".to_owned()))
            }
        };
        let guard = now(&env, guard)?;
        ours(async move {
            guard.release().await.map(|released| match released {
                Released::Freed { held } => millis(held),
                Released::StillHeld => 0.0,
            })
        })
    }
}

#[napi]
pub struct HeldPlace {
    held: lock::Held,
    guard: Mutex<Option<shared_bulkhead::BulkheadGuard>>,
}

impl HeldPlace {
    fn new(guard: shared_bulkhead::BulkheadGuard) -> Self {
        Self { held: guard.held(), guard: Mutex::new(Some(guard)) }
    }
}

#[napi]
impl HeldPlace {
    #[napi]
    pub fn held(&self) -> Held {
        Held::of(self.held.clone())
    }

    #[napi(getter)]
    pub fn is_released(&self) -> bool {
        self.guard.lock().is_none()
    }

    #[napi]
    pub fn leave(&self, env: Env) -> napi::Result<Word> {
        let guard = now(&env, self.guard.lock().take().ok_or_else(released))?;
        ours(async move { guard.leave().await.map(millis) })
    }
}
