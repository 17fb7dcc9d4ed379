//! The way of one call: find out whether to run, run under a lease that is kept, record how it came out.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use resil_wire::idempotency::{Begun, Committed};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::attempt::{Attempt, Ending};
use super::outcome::{Outcome, Remember, Run};
use super::recorded_error::RecordedError;
use super::sharing::{RunEntry, RunLead, Settled, WaitEnd};
use super::token::from_ms;
use super::{IdempotentInner, OnLost};
use crate::clock::Moment;
use crate::error::{Error, Failure, Leased};
use crate::health::Away;
use crate::holding::trusted_until;
use crate::keys;
use crate::leases::{Lease, LeaseKind};
use crate::telemetry::{CallEnding, watched};

/// Requests up to this long are sent as they are; longer ones as a hash.
const FINGERPRINT_BYTES_MAX: usize = 64;

/// How often a reply may be read too late before the work is given up as lost.
const LATE_REPLIES_MAX: u32 = 3;

/// How results and errors are written and read.
pub(crate) struct Codec<'a, T, E> {
    /// Fails, and says why, if it cannot be written so that it can be read again.
    pub write: fn(&T) -> Result<Bytes, String>,
    pub read: fn(Bytes) -> Result<T, Error>,
    pub remember: Option<&'a Remember<E>>,
}

impl<'a, E> Codec<'a, Bytes, E> {
    pub fn bytes(remember: Option<&'a Remember<E>>) -> Self {
        Self { write: |bytes| Ok(bytes.clone()), read: Ok, remember }
    }
}

impl<'a, T: Serialize + DeserializeOwned, E> Codec<'a, T, E> {
    pub fn json(remember: Option<&'a Remember<E>>) -> Self {
        Self {
            write: |value| {
                let json =
                    serde_json::to_vec(value).map_err(|error| format!("it cannot be written as JSON: {error}"))?;
                // NaN, for one, is written without complaint, as null.
                serde_json::from_slice::<T>(&json)
                    .map_err(|error| format!("its JSON cannot be read again: {error}"))?;
                Ok(json.into())
            },
            read: |bytes| {
                let odd = |error| Error::Internal(format!("the recorded result is not what was expected: {error}"));
                serde_json::from_slice(&bytes).map_err(odd)
            },
            remember,
        }
    }
}

impl IdempotentInner {
    pub(super) async fn run<T, E, Fut>(
        &self,
        key: &str,
        fingerprint: &[u8],
        codec: Codec<'_, T, E>,
        work: impl FnOnce(Run) -> Fut,
    ) -> Result<Outcome<T>, Failure<E>>
    where
        Fut: Future<Output = Result<T, E>>,
    {
        let (tally, ran) = (self.meters.begin(), AtomicBool::new(false));
        let work = |run| {
            ran.store(true, Ordering::Relaxed);
            let (clock, begun, doing) = (self.client.clock(), self.client.clock().now(), work(run));
            async move {
                let done = doing.await;
                self.meters.run_seconds.record(clock.now().saturating_sub(begun));
                done
            }
        };
        let running = self.run_uncounted(key, fingerprint, codec, work);
        let outcome =
            watched!(Idempotency, "run", &self.name, running, |outcome| CallEnding::of_work(outcome, |outcome| {
                CallEnding::fine(if outcome.replayed { "replayed" } else { "ran" })
            }));
        tally.ended(&outcome, ran.into_inner());
        outcome
    }

    async fn run_uncounted<T, E, Fut>(
        &self,
        key: &str,
        fingerprint: &[u8],
        codec: Codec<'_, T, E>,
        work: impl FnOnce(Run) -> Fut,
    ) -> Result<Outcome<T>, Failure<E>>
    where
        Fut: Future<Output = Result<T, E>>,
    {
        keys::check_key(key)?;
        let clock = self.client.clock();
        let deadline = clock.now().saturating_add(self.settings.wait);
        let (key, fingerprint) = (self.server_key(key), fingerprint_of(fingerprint));
        loop {
            if self.client.patience().is_cancelled() {
                return Err(Error::ShuttingDown.into());
            }
            match self.client.inner().runs.enter(&key, &fingerprint) {
                RunEntry::First(lead) => return self.lead(&key, &fingerprint, deadline, lead, codec, work).await,
                RunEntry::Duplicate(waiting) => match waiting.until(clock, deadline).await {
                    WaitEnd::Settled(settled) => return self.replay(settled, &codec),
                    WaitEnd::Vacant => {}
                    WaitEnd::Impatient(retry_after) => {
                        return Err(Error::IdempotencyBusy { name: Arc::clone(&self.name), retry_after }.into());
                    }
                },
            }
        }
    }

    /// Asks for all callers of this process, and runs if the server says so.
    async fn lead<T, E, Fut>(
        &self,
        key: &Arc<str>,
        fingerprint: &[u8],
        deadline: Moment,
        lead: RunLead<'_>,
        codec: Codec<'_, T, E>,
        work: impl FnOnce(Run) -> Fut,
    ) -> Result<Outcome<T>, Failure<E>>
    where
        Fut: Future<Output = Result<T, E>>,
    {
        let mut attempt = Attempt::new(&self.client, &self.settings, &self.name, key);
        // Errors name the handle, not the key, which may be made of what nobody else is to know.
        let name = || Arc::clone(&self.name);
        let mut begun = attempt.begin(fingerprint, deadline).await;
        // A reply that nobody read before its lease ended, because the thread was busy elsewhere: asked again, by the same token.
        for _ in 0..LATE_REPLIES_MAX {
            match &begun {
                Ok((Begun::Run { .. }, granted_at)) if self.has_ended(*granted_at) => {
                    begun = attempt.begin(fingerprint, deadline).await;
                }
                _ => break,
            }
        }
        let settled = match begun {
            Ok((Begun::Run { fence, attempt: number, .. }, granted_at)) => {
                let granted_at = match self.settings.replicas {
                    0 => granted_at,
                    replicas => attempt.confirm(replicas).await?,
                };
                let token = attempt.token.clone();
                let lease = Lease::new(LeaseKind::Idempotency, Arc::clone(key), token, self.settings.lease, granted_at);
                let run = Run::new(Some(fence), Some(number), lease.lost.clone());
                return self.run_leased(run, lease, &mut attempt, lead, codec, work).await;
            }
            Ok((Begun::Busy { remaining_ms, .. }, _)) => {
                let retry_after = Some(from_ms(remaining_ms));
                return Err(Error::IdempotencyBusy { name: name(), retry_after }.into());
            }
            Ok((Begun::Replay { failed, result, age_ms }, _)) => Settled::Done {
                is_error: failed,
                result: result.map(Bytes::from_owner),
                age: from_ms(age_ms),
                seen_at: self.client.clock().now(),
            },
            Ok((Begun::Mismatch, _)) => Settled::Mismatch,
            Ok((Begun::Held { attempt }, _)) => Settled::Held { attempt },
            Ok((Begun::Miss, _)) => return Err(Error::Internal("BEGIN was answered MISS".to_owned()).into()),
            Err(error) if error.says_away() && self.settings.when_away == Away::Open => {
                tracing::debug!(%error, name = &*self.name, "idempotent work runs unrecorded");
                // If the server took the question after all, nobody aborts it: the effect is about to happen.
                attempt.leave();
                return self.run_alone(lead, codec, work).await;
            }
            Err(error) => return Err(error.into()),
        };
        lead.settle(settled.clone());
        self.replay(settled, &codec)
    }

    /// Whether a lease that was granted then has ended by now.
    fn has_ended(&self, granted_at: Moment) -> bool {
        self.client.clock().now() >= trusted_until(granted_at, self.settings.lease)
    }

    async fn run_leased<T, E, Fut>(
        &self,
        run: Run,
        lease: Lease,
        attempt: &mut Attempt<'_>,
        lead: RunLead<'_>,
        codec: Codec<'_, T, E>,
        work: impl FnOnce(Run) -> Fut,
    ) -> Result<Outcome<T>, Failure<E>>
    where
        Fut: Future<Output = Result<T, E>>,
    {
        let (number, seen) = (run.attempt.unwrap_or_default(), run.clone());
        let kept = self.client.keep(lease);
        lead.runs_under(&kept);
        let came = {
            let mut work = pin!(work(run));
            tokio::select! {
                biased;
                came = &mut work => came,
                () = kept.until_lost() => match self.settings.on_lost {
                    OnLost::Finish => work.await,
                    OnLost::Cancel => {
                        attempt.leave();
                        let reason = kept.why_lost();
                        return Err(Error::LockLost { what: Leased::Work, name: Arc::clone(&self.name), reason }.into());
                    }
                },
            }
        };
        drop(kept);
        let written = match &came {
            Ok(value) => Some((codec.write)(value)),
            Err(error) => codec.remember.and_then(|remember| remember.written(error)).map(Ok),
        };
        // What cannot be recorded is done all the same: that is recorded, so that nobody does it again, and said to everybody.
        let (result, unwritable, came) = match written {
            None => {
                // An attempt at it that was cut short may have had its effect, as a call that is dropped may have.
                if seen.is_cut_short() && !self.settings.abort_on_cancel {
                    attempt.leave();
                } else {
                    attempt.abort().await;
                }
                return came.map_err(Failure::Inner).map(|value| ran(value, number, false));
            }
            Some(Ok(result)) => (result, false, came.map_err(Failure::Inner)),
            Some(Err(reason)) => {
                let record = RecordedError::unrecorded(&reason).to_bytes();
                (record, true, Err(Error::ResultUnrecorded { name: Arc::clone(&self.name), reason }.into()))
            }
        };
        let is_error = unwritable || came.is_err();
        let until = self.client.clock().now().saturating_add(self.settings.lease / 3);
        let recorded = match attempt.commit(Ending { result: result.clone(), is_error, until }).await {
            Ok(Committed::Committed { .. }) => true,
            Ok(Committed::Lost(reason)) => {
                tracing::warn!(name = &*self.name, reason = reason.text(), "work was done under a lost lease");
                return Err(Error::LockLost {
                    what: Leased::Work,
                    name: Arc::clone(&self.name),
                    reason: reason.text(),
                }
                .into());
            }
            Err(error) => {
                tracing::warn!(%error, name = &*self.name, "work was done and could not be recorded");
                false
            }
        };
        let seen_at = self.client.clock().now();
        lead.settle(Settled::Done { is_error, result: Some(result), age: Duration::ZERO, seen_at });
        came.map(|value| ran(value, number, recorded))
    }

    /// Without a server: no fence, no record; only this process shares the result.
    async fn run_alone<T, E, Fut>(
        &self,
        lead: RunLead<'_>,
        codec: Codec<'_, T, E>,
        work: impl FnOnce(Run) -> Fut,
    ) -> Result<Outcome<T>, Failure<E>>
    where
        Fut: Future<Output = Result<T, E>>,
    {
        let run = Run::new(None, None, CancellationToken::new());
        let value = work(run).await.map_err(Failure::Inner)?;
        let (is_error, result) = match (codec.write)(&value) {
            Ok(result) => (false, result),
            Err(reason) => (true, RecordedError::unrecorded(&reason).to_bytes()),
        };
        let seen_at = self.client.clock().now();
        lead.settle(Settled::Done { is_error, result: Some(result), age: Duration::ZERO, seen_at });
        Ok(ran(value, 0, false))
    }

    fn replay<T, E>(&self, settled: Settled, codec: &Codec<'_, T, E>) -> Result<Outcome<T>, Failure<E>> {
        let name = || Arc::clone(&self.name);
        let (is_error, result, age) = match settled {
            Settled::Done { is_error, result, age, seen_at } => {
                (is_error, result, age + self.client.clock().now().saturating_sub(seen_at))
            }
            Settled::Mismatch => return Err(Error::IdempotencyMismatch { name: name() }.into()),
            Settled::Held { attempt } => return Err(Error::IdempotencyHeld { name: name(), attempt }.into()),
        };
        if is_error {
            if let Some(reason) = result.as_ref().and_then(|bytes| RecordedError::read(bytes)?.why_unrecorded()) {
                return Err(Error::ResultUnrecorded { name: name(), reason }.into());
            }
            let read = |bytes: &Bytes| codec.remember.and_then(|remember| remember.read(bytes));
            return Err(match result.as_ref().and_then(read) {
                Some(error) => Failure::Inner(error),
                None => {
                    let known = result.and_then(|bytes| RecordedError::read(&bytes));
                    let (error, message) = known.map(|known| (known.name, known.message)).unwrap_or_default();
                    Error::IdempotencyFailed { name: name(), error, message }.into()
                }
            });
        }
        let value = match result {
            Some(bytes) => Some((codec.read)(bytes)?),
            None => None,
        };
        Ok(Outcome { value, replayed: true, attempt: 0, age, recorded: true })
    }
}

fn ran<T>(value: T, attempt: u32, recorded: bool) -> Outcome<T> {
    Outcome { value: Some(value), replayed: false, attempt, age: Duration::ZERO, recorded }
}

/// What is sent for a request: itself if it is short, else its length and a hash of it (FNV-1a of 128 bits, which is the
/// same in every version and language).
fn fingerprint_of(request: &[u8]) -> Bytes {
    if request.len() <= FINGERPRINT_BYTES_MAX {
        return Bytes::copy_from_slice(request);
    }
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let hash = request.iter().fold(OFFSET, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME));
    format!("{}:{hash:032x}", request.len()).into()
}
