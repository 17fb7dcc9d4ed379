//! Locks, shared bulkheads, and what is held of them.

use std::sync::Arc;

use napi::bindgen_prelude::{BigInt, Env, Object};
use napi_derive::napi;
use parking_lot::Mutex;
use resil::Error;
use resil::lock::{self, Released};
use resil::shared_bulkhead;
use tokio::task::AbortHandle;

use crate::client::Client;
use crate::convert::{bigint, duration, makes, methods, millis, now, number, optional_duration, run, shown};
use crate::errors::parts;
use crate::executor::queue::{Message, Notification};
use crate::executor::{Word, queue};
use crate::guard::{Guard, Layer};

#[napi]
pub struct Lock(pub(crate) lock::Lock);

#[napi]
pub struct SharedBulkhead(pub(crate) shared_bulkhead::SharedBulkhead);

#[napi]
impl Lock {
    #[napi]
    pub fn guard(&self) -> Guard {
        Guard::of(vec![Layer::Lock(self.0.clone())])
    }
}

methods! { Lock(lock) {
    /// `wait`: the JSON of a duration; omitted: the lock's own.
    acquire(wait: Option<String>) => match optional_duration("wait", wait.as_deref())? {
        None => lock.acquire().await.map(HeldGuard::of_lock),
        Some(wait) => lock.acquire_within(wait).await.map(HeldGuard::of_lock),
    };
    until_acquired() => lock.until_acquired().await.map(HeldGuard::of_lock);
    /// As JSON.
    info() => shown(&lock.info().await?);
    break_lock(actor: String, reason: String) => lock.break_lock(&actor, &reason).await.map(|holders| holders as f64);
    check(owner: String, fence: Option<BigInt>) => {
        lock.check(&owner, fence.as_ref().map(|fence| number("fence", fence)).transpose()?).await
    };
} }

#[napi]
impl SharedBulkhead {
    #[napi]
    pub fn guard(&self) -> Guard {
        Guard::of(vec![Layer::SharedBulkhead(self.0.clone())])
    }
}

methods! { SharedBulkhead(bulkhead) {
    enter(wait: Option<String>) => match optional_duration("wait", wait.as_deref())? {
        None => bulkhead.enter().await.map(HeldGuard::of_permit),
        Some(wait) => bulkhead.enter_within(wait).await.map(HeldGuard::of_permit),
    };
    /// As JSON.
    info() => shown(&bulkhead.info().await?);
} }

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

    /// The listener hears when it is lost. The watch ends with `unwatch`, or when this is collected: what was released is never
    /// lost, so the watch would not end by itself.
    #[napi]
    pub fn watch(&self, listener: u32) -> napi::Result<()> {
        let (queue, held) = (queue()?, self.0.clone());
        let Some(runtime) = crate::runtime::runtime() else { return Ok(()) };
        let task = runtime.spawn(async move {
            held.lost().cancelled().await;
            if let Some(error) = held.loss() {
                queue.post(Message::Notify(listener, Notification::Lost(Box::new(error))));
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

/// What a guard holds, and lets go of when it is dropped.
enum Kind {
    Lock(Arc<lock::LockGuard>),
    Permit(shared_bulkhead::BulkheadGuard),
}

#[napi]
pub struct HeldGuard {
    held: lock::Held,
    /// `None` once it was released.
    kind: Mutex<Option<Kind>>,
}

impl HeldGuard {
    fn of_lock(guard: lock::LockGuard) -> Self {
        Self { held: guard.held(), kind: Mutex::new(Some(Kind::Lock(Arc::new(guard)))) }
    }

    fn of_permit(guard: shared_bulkhead::BulkheadGuard) -> Self {
        Self { held: guard.held(), kind: Mutex::new(Some(Kind::Permit(guard))) }
    }

    fn lock(&self) -> Result<Arc<lock::LockGuard>, Error> {
        match &*self.kind.lock() {
            Some(Kind::Lock(guard)) => Ok(Arc::clone(guard)),
            _ => Err(released()),
        }
    }

    fn take(&self) -> Result<Kind, Error> {
        let mut kind = self.kind.lock();
        if matches!(&*kind, Some(Kind::Lock(guard)) if Arc::strong_count(guard) > 1) {
            return Err(Error::InvalidArgument("it is being extended or checked: release it after that".to_owned()));
        }
        kind.take().ok_or_else(released)
    }
}

fn released() -> Error {
    Error::InvalidArgument("it was released before".to_owned())
}

#[napi]
impl HeldGuard {
    #[napi]
    pub fn held(&self) -> Held {
        Held::of(self.held.clone())
    }

    #[napi]
    pub fn extend(&self, lease: String) -> napi::Result<Word> {
        let guard = self.lock();
        run(async move { guard?.extend(duration("lease", &lease)?).await })
    }

    #[napi]
    pub fn check(&self) -> napi::Result<Word> {
        let guard = self.lock();
        run(async move { guard?.check().await })
    }

    #[napi(getter)]
    pub fn is_released(&self) -> bool {
        self.kind.lock().is_none()
    }

    /// How long it was held, in milliseconds.
    #[napi]
    pub fn release(&self) -> napi::Result<Word> {
        let taken = self.take();
        run(async move {
            match taken? {
                Kind::Permit(guard) => guard.leave().await.map(millis),
                Kind::Lock(guard) => match Arc::try_unwrap(guard).map_err(|_| released())?.release().await? {
                    Released::Freed { held } => Ok(millis(held)),
                    Released::StillHeld => Ok(0.0),
                },
            }
        })
    }
}

makes! {
    lock(lock::LockSettings) -> Lock = Lock;
    shared_bulkhead(shared_bulkhead::SharedBulkheadSettings) -> SharedBulkhead = SharedBulkhead;
}
