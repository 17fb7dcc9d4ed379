//! Several locks at once: all of them, or none.

use napi::bindgen_prelude::{BigInt, Env};
use napi_derive::napi;
use parking_lot::Mutex;
use resil::Error;
use resil::lock::{self, LockSettings};

use crate::client::Client;
use crate::convert::{bigint, methods, now, optional_duration, run, settings as settings_of};
use crate::executor::Word;

#[napi]
pub struct Locks(lock::Locks);

#[napi]
impl Locks {
    #[napi(getter)]
    pub fn names(&self) -> Vec<String> {
        self.0.names().into_iter().map(str::to_owned).collect()
    }
}

methods! { Locks(locks) {
    /// `wait`: the JSON of a duration; omitted: the locks' own.
    acquire(wait: Option<String>) => match optional_duration("wait", wait.as_deref())? {
        None => locks.acquire().await.map(HeldLocks::of),
        Some(wait) => locks.acquire_within(wait).await.map(HeldLocks::of),
    };
} }

#[napi]
pub struct HeldLocks {
    fences: Vec<Option<u64>>,
    /// `None` once they were released.
    guard: Mutex<Option<lock::LocksGuard>>,
}

impl HeldLocks {
    fn of(guard: lock::LocksGuard) -> Self {
        let fences = guard.guards().iter().map(|guard| guard.fence()).collect();
        Self { fences, guard: Mutex::new(Some(guard)) }
    }
}

fn released() -> Error {
    Error::InvalidArgument("they were released before".to_owned())
}

#[napi]
impl HeldLocks {
    #[napi(getter)]
    pub fn fences(&self) -> Vec<Option<BigInt>> {
        self.fences.iter().map(|fence| fence.map(bigint)).collect()
    }

    #[napi(getter)]
    pub fn is_held(&self) -> bool {
        self.guard.lock().as_ref().is_some_and(lock::LocksGuard::is_held)
    }

    #[napi]
    pub fn ensure(&self, env: Env) -> napi::Result<()> {
        let ensured = self.guard.lock().as_ref().map_or_else(|| Err(released()), lock::LocksGuard::ensure);
        now(&env, ensured)
    }

    #[napi]
    pub fn release(&self) -> napi::Result<Word> {
        let guard = self.guard.lock().take().ok_or_else(released);
        run(async move { guard?.release().await })
    }
}

#[napi]
impl Client {
    /// `settings`: JSON.
    #[napi]
    pub fn locks(&self, env: Env, names: Vec<String>, settings: String) -> napi::Result<Locks> {
        let made = settings_of(&settings).and_then(|settings: LockSettings| self.0.locks(names, settings));
        now(&env, made).map(Locks)
    }

    #[napi]
    pub fn lock_name(&self, env: Env, domain: String, resource: String, id: String) -> napi::Result<String> {
        now(&env, lock::lock_name(&domain, &resource, &id))
    }
}
