//! Stored policies.

use resil_core::Instant;
use resil_core::circuit_breaker::{Breaker, BreakerOutcome, Transition as BreakerTransition};
use resil_core::guard::{
    Admitted, Author, EnterRefusal, EnterRequest, Guard, GuardEdit, Guards, LimitRule, SetAction, Subject,
    SubjectChange, SubjectLimit, delete, enter, exit, limit_of, set, show, step_breaker,
};
use resil_core::limits::WAITERS_CEILING;
use resil_core::rate_limit::TierSet;
use resil_core::waited::{Asked, Decision, Waiting};
use resil_core::window::Window;
use resil_wire::command::Reply;
use resil_wire::guard::{GuardEnterCall, GuardEntered, GuardExitCall, GuardExited, write_guard_state};
use resil_wire::policy::{
    PolicyAction, PolicyChanged, PolicyCheckCall, PolicyDeleteCall, PolicyGetCall, PolicySetCall, invalid, no_policy,
    read_document, write_checked, write_history, write_policy,
};
use resil_wire::reply::Value;

use super::channels::{EVERYTHING, MemoryEvent};
use super::store::{State, Store, Touch, When};
use super::waited::{MemoryMachine, Replied, Waited};
use super::{Memory, refused};
use crate::error::Error;
use crate::policies::VersionSeen;
use crate::policies::watch::PolicyMessage;

/// A store has one user, whose name is that of a server's without ACLs.
const USER: &[u8] = b"default";

impl MemoryMachine for Guards {
    fn granted(admitted: Admitted) -> Reply {
        Reply::GuardEntered((&admitted).into())
    }

    fn refused(refusal: EnterRefusal) -> Reply {
        GuardEntered::try_from(refusal).map_or(Reply::Map(Value::Null), Reply::GuardEntered)
    }

    fn error(refusal: &EnterRefusal) -> Option<Error> {
        GuardEntered::try_from(*refusal).err().map(refused)
    }

    fn transitions(edits: &[GuardEdit]) -> Vec<BreakerTransition> {
        let moved = |edit: &GuardEdit| if let GuardEdit::Moved(transition) = edit { Some(*transition) } else { None };
        edits.iter().filter_map(moved).collect()
    }
}

fn reply(asked: Asked<Guards>) -> Result<Reply, Error> {
    match asked {
        Decision::Granted(admitted) => Ok(Guards::granted(admitted)),
        Decision::Refused(refusal) => match Guards::error(&refusal) {
            Some(error) => Err(error),
            None => Ok(Guards::refused(refusal)),
        },
        Decision::Queued | Decision::Conflict => Err(Error::Internal("a call that waits has no reply yet".to_owned())),
    }
}

pub(super) fn check_policy(call: &PolicyCheckCall<'_>) -> Reply {
    Reply::Map(Value::written(|sink| write_checked(call.json, sink)))
}

impl Memory {
    pub fn policy_keys(&self) -> Vec<Vec<u8>> {
        self.store.keys_of(|state| matches!(state, State::Guard(_)))
    }

    pub async fn wait_for_admission(&self, call: &GuardEnterCall<'_>) -> Result<Reply, Error> {
        if call.subject.is_some() {
            return self.store.try_to_enter(call, When::Now);
        }
        let ask = |waiting| self.store.ask_to_enter(call, Some(waiting), When::Now);
        self.wait_in_queue::<Guards>((call.key, call.wait.length, WAITERS_CEILING), ask, reply).await
    }
}

impl Store {
    pub fn set_policy(&self, call: &PolicySetCall<'_>, when: When) -> Result<Reply, Error> {
        let (document, settings) = read_document(call.json).map_err(|wrong| refused(invalid(&wrong)))?;
        let author = Author { actor: call.actor.unwrap_or(USER), reason: call.reason.unwrap_or_default() };
        let changed = self.step::<Guards, _>(call.key, when, |key, setting| {
            set(key, &document, settings, call.expected, author, setting)
        })?;
        self.publish_policy(call.key, PolicyChanged::try_from(changed).map_err(refused)?)
    }

    pub fn delete_policy(&self, call: &PolicyDeleteCall<'_>, when: When) -> Result<Reply, Error> {
        let author = Author { actor: call.actor.unwrap_or(USER), reason: call.reason.unwrap_or_default() };
        let deleted =
            self.step::<Guards, _>(call.key, when, |key, setting| delete(key, call.expected, author, setting))?;
        self.publish_policy(call.key, PolicyChanged::try_from(deleted).map_err(refused)?)
    }

    fn publish_policy(&self, key: &[u8], changed: PolicyChanged) -> Result<Reply, Error> {
        if changed.action != PolicyAction::Set(SetAction::Same) {
            let message = PolicyMessage {
                key: key.to_vec(),
                seen: VersionSeen { version: changed.version, at_ms: None },
                action: changed.action.into(),
            };
            self.policies.publish(key, &message);
            self.policies.publish(b"", &message);
            self.events.publish(EVERYTHING, &MemoryEvent::Policy(message));
        }
        Ok(Reply::PolicyChanged(changed))
    }

    pub fn show_policy(&self, call: &PolicyGetCall<'_>, when: When) -> Result<Reply, Error> {
        self.look_at_guard(call.key, when, |guard, _| {
            Ok(Value::written(|sink| write_policy(guard, call.version, sink)))
        })
    }

    pub fn show_history(&self, key: &[u8], when: When) -> Result<Reply, Error> {
        self.look_at_guard(key, when, |guard, _| Ok(Value::written(|sink| write_history(guard, sink))))
    }

    fn look_at_guard(
        &self,
        key: &[u8],
        when: When,
        look: impl FnOnce(&Guard, Instant) -> Result<Value, Error>,
    ) -> Result<Reply, Error> {
        self.on(key, when, |waited: &mut Waited<Guards>, now| {
            look(waited.state(), now).map(|value| (Reply::Map(value), Touch::Unchanged))
        })
    }

    pub fn show_guard(&self, key: &[u8], when: When) -> Result<Reply, Error> {
        self.on(key, when, |waited: &mut Waited<Guards>, now| {
            let view = show(waited.state(), waited.queue(), None, now).ok_or_else(|| refused(no_policy()))?;
            Ok((Reply::Map(Value::written(|sink| write_guard_state(&view, sink))), Touch::Unchanged))
        })
    }

    fn ask_to_enter(
        &self,
        call: &GuardEnterCall<'_>,
        waiting: Option<Waiting>,
        when: When,
    ) -> Result<Replied<Asked<Guards>>, Error> {
        let request = call.request(rand::random());
        let id = waiting.map(|waiting| waiting.id);
        self.ask::<Guards>(call.key, when, id, |key, setting| enter(key, call.owner, request, None, waiting, setting))
    }

    pub fn try_to_enter(&self, call: &GuardEnterCall<'_>, when: When) -> Result<Reply, Error> {
        match call.subject {
            None => reply(self.ask_to_enter(call, None, when)?.verdict),
            Some(subject) => self.enter_for(call, subject, when),
        }
    }

    fn enter_for(&self, call: &GuardEnterCall<'_>, name: &[u8], when: When) -> Result<Reply, Error> {
        let request: EnterRequest = call.request(rand::random());
        let rule = self.on(call.key, when, |waited: &mut Waited<Guards>, _| {
            Ok((limit_of(waited.state()).cloned(), Touch::Unchanged))
        })?;
        let keys = (call.key, name);
        let entered = match rule {
            None => self.step::<Guards, _>(call.key, when, |key, setting| {
                let subject = Some(Subject { name, limit: SubjectLimit::Unlimited });
                enter(key, call.owner, request, subject, None, setting)
            })?,
            Some(LimitRule::Gcra(_)) => self.step_beside::<Guards, TierSet, _>(
                keys,
                when,
                |key, tiers, setting| {
                    let subject = Some(Subject { name, limit: SubjectLimit::Gcra(tiers) });
                    enter(key, call.owner, request, subject, None, setting)
                },
                |entered, tiers| match entered {
                    Decision::Granted(Admitted { subject: Some(SubjectChange::Gcra(change)), .. }) => {
                        tiers.clone_from(change);
                        Touch::Changed
                    }
                    _ => Touch::Unchanged,
                },
            )?,
            Some(LimitRule::Window(_)) => self.step_beside::<Guards, Window, _>(
                keys,
                when,
                |key, log, setting| {
                    let subject = Some(Subject { name, limit: SubjectLimit::Window(log) });
                    enter(key, call.owner, request, subject, None, setting)
                },
                |entered, log| match entered {
                    Decision::Granted(Admitted { subject: Some(SubjectChange::Window(change)), .. }) => {
                        log.apply(change);
                        Touch::Changed
                    }
                    _ => Touch::Unchanged,
                },
            )?,
        };
        reply(entered)
    }

    pub fn exit_guard(&self, call: &GuardExitCall<'_>, when: When) -> Result<Reply, Error> {
        let request = call.request(rand::random());
        let exited =
            self.step::<Guards, _>(call.key, when, |key, setting| exit(key, call.number(), request, setting))?;
        GuardExited::try_from(exited).map(Reply::GuardExited).map_err(refused)
    }

    /// True if the key holds a policy.
    pub fn is_policy(&self, key: &[u8]) -> bool {
        self.look(key, |state| matches!(state, State::Guard(_))).unwrap_or_default()
    }

    /// A step of the breaker of the policy in `key`.
    pub fn on_policy_breaker<V>(
        &self,
        key: &[u8],
        when: When,
        step: impl FnOnce(&mut Breaker, Instant) -> Result<BreakerOutcome<V>, Error>,
    ) -> Result<V, Error> {
        let mut is_live = false;
        let stepped = self.step::<Guards, _>(key, when, |key, setting| {
            is_live = key.state.settings().is_some();
            let now = setting.now;
            step_breaker(key, |breaker| step(breaker, now), setting)
        })?;
        stepped.unwrap_or_else(|| Err(no_breaker(is_live)))
    }

    /// Looks at the breaker of the policy in `key`.
    pub fn look_at_policy_breaker(
        &self,
        key: &[u8],
        when: When,
        look: impl FnOnce(&Breaker, Instant) -> Value,
    ) -> Result<Reply, Error> {
        self.look_at_guard(key, when, |guard, now| {
            let breaker = guard.breaker().ok_or_else(|| no_breaker(guard.settings().is_some()))?;
            Ok(look(breaker, now))
        })
    }
}

fn no_breaker(is_live: bool) -> Error {
    if is_live {
        Error::InvalidArgument("the policy under this key has no breaker".to_owned())
    } else {
        refused(no_policy())
    }
}
