//! `RES.IDEMP` and `RES.SFLIGHT` without a server. Nobody waits here: WAIT means do not wait.

use resil_core::Instant;
use resil_core::idempotency::{self, Ask as Running, Begun, Record, Room as RecordRoom};
use resil_core::lock::Setting;
use resil_core::queue::Queue;
use resil_core::single_flight::{self, Ask as Leading, Flight, Joined, Publication, Room as FlightRoom};
use resil_wire::holding::write_renewed;
use resil_wire::idempotency::{
    self as idempotency_wire, BeginCall, CommitCall, GetCall, OnceCall, RenewCall, TokenCall,
};
use resil_wire::reply::Value;
use resil_wire::single_flight::{self as flight_wire, AbandonCall, Brought, InvalidateCall, JoinCall, PublishCall};

use crate::memory::{BOUNDS, Memory, State, WRONG_TYPE, text};

const WRONG_PHASE: &str = "PHASE the key belongs to the other one of ONCE and BEGIN";

impl Memory {
    pub(crate) fn idempotency(&mut self, words: &[&[u8]], now: Instant) -> Result<Value, String> {
        let (name, args) = words.split_first().ok_or("ERR no subcommand")?;
        let key = args.first().copied().unwrap_or_default();
        match name.to_ascii_uppercase().as_slice() {
            b"BEGIN" => {
                let call = BeginCall::parse(args, BOUNDS).map_err(text)?;
                let BeginCall { token, fingerprint, lease, keep, on_lapse, .. } = call;
                let ask = Running { fingerprint: fingerprint.into(), lease, keep, on_lapse, bind_to: None };
                match self.on_record(key, now, |room, setting| idempotency::begin(room, token, ask, None, setting))? {
                    Begun::Run(run) => Ok(Value::written(|sink| idempotency_wire::write_run(&run, sink))),
                    Begun::Settled(settled) => {
                        Ok(Value::written(|sink| idempotency_wire::write_settled(&settled, sink)))
                    }
                    Begun::Queued | Begun::WrongPhase => Err(WRONG_PHASE.to_owned()),
                }
            }
            b"COMMIT" => {
                let CommitCall { token, ttl, result, failed, .. } = CommitCall::parse(args).map_err(text)?;
                let brought = (Some(result.into()), failed);
                let committed =
                    self.on_record(key, now, |room, setting| idempotency::commit(room, token, ttl, brought, setting))?;
                Ok(Value::written(|sink| idempotency_wire::write_committed(&committed, sink)))
            }
            b"ABORT" => {
                let TokenCall { token, .. } = TokenCall::parse(args, idempotency_wire::ABORT_USAGE).map_err(text)?;
                let lost = self.on_record(key, now, |room, setting| idempotency::abort(room, token, setting))?;
                Ok(Value::written(|sink| idempotency_wire::write_aborted(lost, sink)))
            }
            b"RENEW" => {
                let call = RenewCall::parse(args, BOUNDS, idempotency_wire::RENEW_USAGE).map_err(text)?;
                let renewed = self
                    .on_record(key, now, |room, setting| idempotency::renew(room, call.token, call.lease, setting))?;
                Ok(Value::written(|sink| write_renewed(&renewed, sink)))
            }
            b"ONCE" => {
                let OnceCall { ttl, token, .. } = OnceCall::parse(args).map_err(text)?;
                let first = self.on_record(key, now, |room, setting| idempotency::once(room, token, ttl, setting))?;
                Ok(Value::Integer(i64::from(first.map_err(|()| WRONG_PHASE.to_owned())?)))
            }
            b"GET" => {
                let GetCall { fingerprint, .. } = GetCall::parse(args).map_err(text)?;
                let settled = idempotency::look(&self.record(key)?, fingerprint, None, now);
                Ok(Value::written(|sink| idempotency_wire::write_settled(&settled, sink)))
            }
            other => Err(format!("ERR unknown subcommand '{}'", other.escape_ascii())),
        }
    }

    pub(crate) fn flight(&mut self, words: &[&[u8]], now: Instant) -> Result<Value, String> {
        let (name, args) = words.split_first().ok_or("ERR no subcommand")?;
        let key = args.first().copied().unwrap_or_default();
        match name.to_ascii_uppercase().as_slice() {
            b"JOIN" => {
                let JoinCall { token, lease, .. } = JoinCall::parse(args, BOUNDS).map_err(text)?;
                let ask = Leading { lease, bind_to: None };
                match self.on_flight(key, now, |room, setting| single_flight::join(room, token, ask, None, setting))? {
                    Joined::Lead(lead) => Ok(Value::written(|sink| flight_wire::write_lead(&lead, sink))),
                    Joined::Seen(seen) => Ok(Value::written(|sink| flight_wire::write_seen(&seen, sink))),
                    Joined::Queued => Err("ERR nobody waits here".to_owned()),
                }
            }
            b"GET" => {
                resil_wire::breaker::parse_key(args, flight_wire::GET_USAGE).map_err(text)?;
                let seen = single_flight::look(&self.stored_flight(key)?, now);
                Ok(Value::written(|sink| flight_wire::write_seen(&seen, sink)))
            }
            b"PUBLISH" => {
                let PublishCall { token, ttl, brought, .. } =
                    PublishCall::parse(args, resil_core::limits::VALUE_DEFAULT_MAX).map_err(text)?;
                let publication = match brought {
                    Brought::Value { bytes, stale } => Publication::Value { bytes: bytes.into(), stale },
                    Brought::Empty => Publication::Empty,
                    Brought::Error { text } => Publication::Error { text: text.into() },
                };
                let published = self.on_flight(key, now, |room, setting| {
                    single_flight::publish(room, token, ttl, publication, setting)
                })?;
                Ok(Value::written(|sink| flight_wire::write_published(&published, sink)))
            }
            b"ABANDON" => {
                let AbandonCall { token, retry, .. } = AbandonCall::parse(args).map_err(text)?;
                let abandoned =
                    self.on_flight(key, now, |room, setting| single_flight::abandon(room, token, retry, setting))?;
                Ok(Value::written(|sink| flight_wire::write_abandoned(&abandoned, sink)))
            }
            b"RENEW" => {
                let call = RenewCall::parse(args, BOUNDS, flight_wire::RENEW_USAGE).map_err(text)?;
                let renewed = self
                    .on_flight(key, now, |room, setting| single_flight::renew(room, call.token, call.lease, setting))?;
                Ok(Value::written(|sink| write_renewed(&renewed, sink)))
            }
            b"INVALIDATE" => {
                let InvalidateCall { soft, .. } = InvalidateCall::parse(args).map_err(text)?;
                let anything =
                    self.on_flight(key, now, |room, setting| single_flight::invalidate(room, soft, setting))?;
                Ok(Value::Integer(i64::from(anything)))
            }
            other => Err(format!("ERR unknown subcommand '{}'", other.escape_ascii())),
        }
    }

    fn on_record<V>(
        &mut self,
        key: &[u8],
        now: Instant,
        step: impl FnOnce(&mut RecordRoom<'_>, &mut Setting<'_>) -> idempotency::Outcome<V>,
    ) -> Result<V, String> {
        let mut record = self.record(key)?;
        let mut setting = Setting { now, promoted_at: None, floor: &mut self.floor };
        let outcome = step(&mut RecordRoom { record: &mut record, queue: &mut Queue::default() }, &mut setting);
        if !outcome.edits.is_empty() {
            self.keys.insert(key.to_vec(), State::Record(record));
        }
        Ok(outcome.verdict)
    }

    fn on_flight<V>(
        &mut self,
        key: &[u8],
        now: Instant,
        step: impl FnOnce(&mut FlightRoom<'_>, &mut Setting<'_>) -> single_flight::Outcome<V>,
    ) -> Result<V, String> {
        let mut flight = self.stored_flight(key)?;
        let mut setting = Setting { now, promoted_at: None, floor: &mut self.floor };
        let outcome = step(&mut FlightRoom { flight: &mut flight, queue: &mut Queue::default() }, &mut setting);
        if !outcome.edits.is_empty() {
            self.keys.insert(key.to_vec(), State::Flight(Box::new(flight)));
        }
        Ok(outcome.verdict)
    }

    fn record(&self, key: &[u8]) -> Result<Record, String> {
        match self.keys.get(key) {
            None => Ok(Record::default()),
            Some(State::Record(record)) => Ok(record.clone()),
            Some(_) => Err(WRONG_TYPE.to_owned()),
        }
    }

    fn stored_flight(&self, key: &[u8]) -> Result<Flight, String> {
        match self.keys.get(key) {
            None => Ok(Flight::default()),
            Some(State::Flight(flight)) => Ok((**flight).clone()),
            Some(_) => Err(WRONG_TYPE.to_owned()),
        }
    }
}
