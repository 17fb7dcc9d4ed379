//! Work that is done once.

use bytes::Bytes;
use napi::bindgen_prelude::Buffer;
use napi_derive::napi;
use resil::Failure;
use resil::idempotency::{self, Outcome, RecordedState, Remember, Run};

use crate::client::Client;
use crate::convert::{duration, makes, methods, millis, run_with};
use crate::executor::Word;
use crate::executor::attempt::{Call, Detail};
use crate::guard::flat;
use crate::thrown::Thrown;

#[napi]
pub struct Idempotent(pub(crate) idempotency::Idempotent);

/// What came of it: `value` is what is recorded; the caller that ran has its own.
#[napi(object, object_from_js = false)]
pub struct Came {
    pub value: Option<Buffer>,
    pub replayed: bool,
    pub attempt: u32,
    pub age_ms: f64,
    pub recorded: bool,
}

impl Came {
    pub fn of(outcome: Outcome<Bytes>) -> Self {
        Self {
            value: outcome.value.filter(|_| outcome.replayed).map(|bytes| Buffer::from(bytes.to_vec())),
            replayed: outcome.replayed,
            attempt: outcome.attempt,
            age_ms: millis(outcome.age),
            recorded: outcome.recorded,
        }
    }
}

/// One run of the function, which gets its fence, and a signal when its lease is lost. What is recorded of its result.
pub async fn attempt(call: Call, run: Run) -> Result<Bytes, Failure<Thrown>> {
    let detail = Detail { fence: run.fence(), attempt: run.attempt().unwrap_or_default(), ..Detail::default() };
    let settled = call.attempt(Some(detail)).warned_by(run.lost().clone().cancelled_owned()).await;
    if settled.is_err() && call.is_cut_short() {
        run.cut_short();
    }
    settled.map(|done| done.bytes.unwrap_or_default())
}

/// Final errors are those that JavaScript has written down. `reads`: whether it knows which errors are final, and so reads them.
pub fn remember(reads: bool) -> Remember<Failure<Thrown>> {
    fn write(failure: &Failure<Thrown>) -> Option<Bytes> {
        match failure {
            Failure::Inner(thrown) => thrown.recorded.clone(),
            Failure::Exhausted { last, .. } => write(last),
            Failure::Resil(_) => None,
        }
    }
    let read = move |bytes: &[u8]| {
        let recorded = Some(Bytes::copy_from_slice(bytes));
        reads.then(|| Failure::Inner(Thrown { recorded, ..Thrown::of_attempt(0) }))
    };
    Remember::with(write, read)
}

#[napi]
impl Idempotent {
    #[napi]
    pub fn run(&self, key: String, fingerprint: Buffer, remembers: bool) -> napi::Result<Word> {
        let idempotent = self.0.clone();
        let fingerprint = fingerprint.to_vec();
        run_with(|call| async move {
            let work = |run: Run| attempt(call, run);
            let remember = remember(remembers);
            let outcome = idempotent.run_remembering(&key, &fingerprint, &remember, work).await;
            outcome.map(Came::of).map_err(flat)
        })
    }
}

methods! { Idempotent(idempotent) {
    once(key: String, ttl: String, token: Option<String>) => {
        idempotent.once(&key, duration("ttl", &ttl)?, token.as_deref()).await
    };
    get(key: String) => idempotent.get(&key).await.map(KnownState::from);
} }

impl From<RecordedState> for KnownState {
    fn from(known: RecordedState) -> Self {
        let of = |state| Self { state, ..Self::default() };
        match known {
            RecordedState::Unknown => of("unknown"),
            RecordedState::Held { attempt } => Self { attempt: Some(attempt), ..of("held") },
            RecordedState::Running { attempt, remaining } => {
                Self { attempt: Some(attempt), remaining_ms: Some(millis(remaining)), ..of("running") }
            }
            RecordedState::Done { result, is_error, age } => Self {
                result: result.map(|bytes| Buffer::from(bytes.to_vec())),
                is_error: Some(is_error),
                age_ms: Some(millis(age)),
                ..of("done")
            },
        }
    }
}

#[napi(object, object_from_js = false)]
#[derive(Default)]
pub struct KnownState {
    pub state: &'static str,
    pub attempt: Option<u32>,
    pub remaining_ms: Option<f64>,
    pub result: Option<Buffer>,
    pub is_error: Option<bool>,
    pub age_ms: Option<f64>,
}

makes! {
    idempotent(idempotency::IdempotencySettings) -> Idempotent = Idempotent;
}
