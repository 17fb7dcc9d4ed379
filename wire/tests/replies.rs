//! Every reply is read back to the same; anything that is not a reply is refused, not guessed at.
//!
//! How to repeat a failing run: see `seed`.

#[allow(dead_code)] // not every test needs all of it
mod arbitrary;
#[path = "../../core/tests/seed/mod.rs"]
mod seed;

use arbitrary::parts::{bytes, reason, shared, state, why, written};
use arbitrary::{command, fence, generation, ledger, pages, permit};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use resil_core::circuit_breaker::{Breaker, view};
use resil_core::guard::{Layer, SetAction, StopReason};
use resil_core::{Instant, Span};
use resil_wire::breaker::state::write_state;
use resil_wire::breaker::{Admitted, Counted, Forced};
use resil_wire::bulkhead::Entered;
use resil_wire::command::{Command, Reply};
use resil_wire::gcra::{LimitReply, Numbers};
use resil_wire::guard::{GuardEntered, GuardExited, RateReply};
use resil_wire::heartbeat::{Heartbeat, Lost};
use resil_wire::holding::{InfoCall, Released, Renewed};
use resil_wire::idempotency::{Begun, Committed};
use resil_wire::lock::{Acquired, Taken};
use resil_wire::mgcra::LimitsReply;
use resil_wire::policy::{PolicyAction, PolicyChanged};
use resil_wire::reply::Value;
use resil_wire::single_flight::{Joined, Published, SeenMany};

/// Milliseconds, -1 among them.
fn ms() -> impl Strategy<Value = i64> {
    prop_oneof![Just(-1), Just(0), any::<i64>()]
}

fn numbers() -> impl Strategy<Value = Numbers> {
    (any::<i64>(), any::<i64>(), ms(), ms()).prop_map(|(capacity, remaining, retry_after_ms, reset_after_ms)| Numbers {
        capacity,
        remaining,
        retry_after_ms,
        reset_after_ms,
    })
}

fn begun() -> BoxedStrategy<Begun> {
    prop_oneof![
        (option::of(shared()), any::<bool>(), ms()).prop_map(|(result, failed, age_ms)| Begun::Replay {
            failed,
            result,
            age_ms
        }),
        (ms(), any::<u32>()).prop_map(|(remaining_ms, attempt)| Begun::Busy { remaining_ms, attempt }),
        Just(Begun::Mismatch),
        any::<u32>().prop_map(|attempt| Begun::Held { attempt }),
    ]
    .boxed()
}

fn joined() -> BoxedStrategy<Joined> {
    prop_oneof![
        (shared(), ms(), ms()).prop_map(|(bytes, age_ms, fresh_ms)| Joined::Value { bytes, age_ms, fresh_ms }),
        (shared(), ms()).prop_map(|(bytes, age_ms)| Joined::Stale { bytes, age_ms }),
        ms().prop_map(|age_ms| Joined::Empty { age_ms }),
        shared().prop_map(|text| Joined::Error { text }),
        ms().prop_map(|remaining_ms| Joined::Busy { remaining_ms }),
    ]
    .boxed()
}

/// Anything a server could send, and much that it could not.
fn value() -> impl Strategy<Value = Value> {
    let words = ["GRANTED", "LOST", "TAKEN", "RUN", "MISS", "VALUE", "closed", "expired", "counted", "ok", "0.1.2"];
    let leaf = prop_oneof![
        any::<i64>().prop_map(Value::Integer),
        (-1..3i64).prop_map(Value::Integer),
        bytes().prop_map(Value::Text),
        select(words.to_vec()).prop_map(|word| Value::Text(word.into())),
        Just(Value::Null),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..7).prop_map(Value::Array),
            vec((inner.clone(), inner), 0..3).prop_map(Value::Map),
        ]
    })
}

/// Any reply that `command` can get.
fn reply_to(command: &Command<'_>) -> BoxedStrategy<Reply> {
    match command {
        Command::Gcra(call) => limit(if call.quotas.len() > 1 { call.quotas.len() } else { 0 }),
        Command::Window(_) => limit(0),
        Command::Mgcra(call) => {
            let keys = call.limits.len();
            (any::<i64>(), option::of(0..keys), vec(numbers(), keys))
                .prop_map(|(granted, refused_by, keys)| {
                    Reply::Limits(LimitsReply { granted, refused_by, keys: keys.into() })
                })
                .boxed()
        }
        Command::Throttle(_) => any::<[i64; 5]>().prop_map(Reply::Throttle).boxed(),
        Command::BreakerAdmit(_) => (option::of(permit()), state(), ms(), generation())
            .prop_map(|(permit, state, retry_after_ms, generation)| {
                Reply::Admitted(Admitted { permit, state, retry_after_ms, generation })
            })
            .boxed(),
        Command::BreakerReport(_) | Command::BreakerTally(_) => (why(), state(), generation(), ms())
            .prop_map(|(why, state, generation, retry_after_ms)| {
                Reply::Counted(Counted { why, state, generation, retry_after_ms })
            })
            .boxed(),
        Command::BreakerForce(_) => {
            (state(), generation()).prop_map(|(state, generation)| Reply::Forced(Forced { state, generation })).boxed()
        }
        Command::BreakerReset(_)
        | Command::BreakerConfig(_)
        | Command::LockCheck(_)
        | Command::LockBreak(_)
        | Command::IdempOnce(_)
        | Command::FlightInvalidate(_)
        | Command::FlightSet(_)
        | Command::FlightClear(_) => any::<i64>().prop_map(Reply::Number).boxed(),
        Command::LockAcquire(_) => {
            let taken = || {
                (option::of(bytes()), ms(), any::<i64>()).prop_map(|(holder, remaining_ms, waiters)| Taken {
                    holder,
                    remaining_ms,
                    waiters,
                })
            };
            prop_oneof![
                (fence(), ms(), ms()).prop_map(|(fence, lease_ms, waited_ms)| Acquired::Granted {
                    fence,
                    lease_ms,
                    waited_ms
                }),
                taken().prop_map(Acquired::Taken),
                taken().prop_map(Acquired::Timeout),
            ]
            .prop_map(Reply::Acquired)
            .boxed()
        }
        Command::BulkheadEnter(_) => (0..3, any::<[i64; 4]>())
            .prop_map(|(kind, [active, queued, ms, waited_ms])| match kind {
                0 => Entered::Granted { active, queued, lease_ms: ms, waited_ms },
                1 => Entered::Full { active, queued, retry_after_ms: ms },
                _ => Entered::Timeout { active, queued, retry_after_ms: ms },
            })
            .prop_map(Reply::Entered)
            .boxed(),
        Command::LockRenew(_) | Command::BulkheadRenew(_) | Command::IdempRenew(_) | Command::FlightRenew(_) => {
            prop_oneof![
                (fence(), ms()).prop_map(|(fence, lease_ms)| Renewed::Granted { fence, lease_ms }),
                reason().prop_map(Renewed::Lost)
            ]
            .prop_map(Reply::Renewed)
            .boxed()
        }
        Command::LockRelease(_) | Command::BulkheadLeave(_) => {
            prop_oneof![ms().prop_map(|held_ms| Released::Released { held_ms }), reason().prop_map(Released::Lost)]
                .prop_map(Reply::Released)
                .boxed()
        }
        Command::IdempBegin(_) => {
            let run = (fence(), any::<u32>(), ms()).prop_map(|(fence, attempt, waited_ms)| Begun::Run {
                fence,
                attempt,
                waited_ms,
            });
            prop_oneof![run, begun()].prop_map(Reply::Begun).boxed()
        }
        Command::IdempGet(_) => prop_oneof![1 => Just(Begun::Miss), 4 => begun()].prop_map(Reply::Begun).boxed(),
        Command::IdempCommit(_) => prop_oneof![
            any::<bool>().prop_map(|stored| Committed::Committed { stored }),
            reason().prop_map(Committed::Lost)
        ]
        .prop_map(Reply::Committed)
        .boxed(),
        Command::IdempAbort(_) => option::of(reason()).prop_map(Reply::Aborted).boxed(),
        Command::FlightAbandon(_) => option::of(reason()).prop_map(Reply::Abandoned).boxed(),
        Command::FlightJoin(_) => {
            let lead = (fence(), option::of(shared()), ms()).prop_map(|(fence, stale, waited_ms)| Joined::Lead {
                fence,
                stale,
                waited_ms,
            });
            let early =
                (fence(), shared(), ms()).prop_map(|(fence, bytes, fresh_ms)| Joined::Early { fence, bytes, fresh_ms });
            prop_oneof![lead, early, joined()].prop_map(Reply::Joined).boxed()
        }
        Command::FlightGet(_) => prop_oneof![1 => Just(Joined::Miss), 4 => joined()].prop_map(Reply::Joined).boxed(),
        Command::FlightMget(call) => {
            let seen = option::of(prop_oneof![1 => Just(Joined::Miss), 4 => joined()]);
            vec(seen, call.keys.len()).prop_map(|seen| Reply::SeenMany(SeenMany(seen))).boxed()
        }
        Command::FlightPublish(_) => prop_oneof![
            any::<i64>().prop_map(|followers| Published::Published { followers }),
            reason().prop_map(Published::Lost)
        ]
        .prop_map(Reply::Published)
        .boxed(),
        Command::Heartbeat(_) => {
            let lost = (bytes(), fence(), reason()).prop_map(|(key, fence, reason)| Lost { key, fence, reason });
            (any::<i64>(), vec(lost, 0..5))
                .prop_map(|(bound, losses)| Reply::Heartbeat(Heartbeat { bound, losses }))
                .boxed()
        }
        Command::BreakerState(_)
        | Command::LockInfo(_)
        | Command::BulkheadInfo(_)
        | Command::IdempInfo(_)
        | Command::FlightInfo(_) => {
            vec((bytes().prop_map(Value::Text), value()), 0..5).prop_map(|pairs| Reply::Map(Value::Map(pairs))).boxed()
        }
        Command::PolicySet(_) | Command::PolicyDelete(_) => {
            let actions = SetAction::ALL.map(PolicyAction::Set).into_iter().chain([PolicyAction::Deleted]);
            let action = prop::sample::select(actions.collect::<Vec<_>>());
            let changed = (generation(), action).prop_map(|(version, action)| PolicyChanged { version, action });
            changed.prop_map(Reply::PolicyChanged).boxed()
        }
        Command::GuardEnter(_) => entered().prop_map(Reply::GuardEntered).boxed(),
        Command::GuardExit(_) => prop_oneof![
            Just(GuardExited::Done),
            (ms(), any::<u32>()).prop_map(|(delay_ms, attempt)| GuardExited::Retry { delay_ms, attempt }),
            (prop::sample::select(&StopReason::ALL), any::<u32>())
                .prop_map(|(reason, attempts)| GuardExited::Stop { reason, attempts }),
        ]
        .prop_map(Reply::GuardExited)
        .boxed(),
        Command::GuardState(_) => {
            vec((bytes().prop_map(Value::Text), value()), 0..5).prop_map(|pairs| Reply::Map(Value::Map(pairs))).boxed()
        }
        // One without a strategy of its own has the reply of its page.
        command => ledger::reply_to(command, value().boxed())
            .unwrap_or_else(|| Just(command.read(pages::shown_reply(command)).expect("what its page shows")).boxed()),
    }
}

fn entered() -> impl Strategy<Value = GuardEntered> {
    let rate = || {
        let rate = any::<[i64; 3]>();
        option::of(rate.prop_map(|[limit, remaining, reset_ms]| RateReply { limit, remaining, reset_ms }))
    };
    prop_oneof![
        (bytes(), any::<u32>(), any::<[i64; 2]>(), generation(), rate()).prop_map(
            |(ticket, attempt, [timeout_ms, deadline_ms], version, rate)| GuardEntered::Admitted {
                ticket,
                attempt,
                timeout_ms,
                deadline_ms,
                version,
                rate
            }
        ),
        (prop::sample::select(&Layer::ALL), ms(), bytes(), generation(), rate()).prop_map(
            |(layer, retry_after_ms, reason, version, rate)| GuardEntered::Refused {
                layer,
                retry_after_ms,
                reason,
                version,
                rate
            }
        ),
    ]
}

fn limit(tiers: usize) -> BoxedStrategy<Reply> {
    (any::<i64>(), numbers(), vec(numbers(), tiers))
        .prop_map(|(granted, binding, tiers)| Reply::Limit(LimitReply { granted, binding, tiers: tiers.into() }))
        .boxed()
}

fn exchange() -> impl Strategy<Value = (Command<'static>, Reply)> {
    command().prop_flat_map(|command| {
        let reply = reply_to(&command);
        (Just(command), reply)
    })
}

/// Puts something of another type at the end of `path`. A map may have anything inside: the whole of it is spoiled.
fn spoil(value: &mut Value, path: &[prop::sample::Index]) {
    match (value, path) {
        (Value::Array(elements), [index, rest @ ..]) if !elements.is_empty() => spoil(index.get_mut(elements), rest),
        (value @ Value::Map(_), _) => *value = Value::Integer(0),
        (value, _) => *value = Value::Map(vec![(Value::Integer(1), Value::Null)]),
    }
}

/// Where a reply has a word out of a few.
fn places_of_words(reply: &Reply) -> &'static [usize] {
    match reply {
        Reply::Admitted(Admitted { permit: Some(_), .. }) => &[1, 2],
        Reply::Admitted(_) => &[1],
        Reply::Counted(_) => &[1, 4],
        Reply::Begun(Begun::Replay { .. }) | Reply::Committed(_) => &[0, 1],
        Reply::Aborted(Some(_)) | Reply::Abandoned(Some(_)) => &[0, 1],
        Reply::Renewed(Renewed::Lost(_)) | Reply::Released(Released::Lost(_)) => &[0, 1],
        Reply::Published(Published::Lost(_)) => &[0, 1],
        Reply::Forced(_) | Reply::Acquired(_) | Reply::Entered(_) | Reply::Renewed(_) | Reply::Released(_) => &[0],
        Reply::Begun(_) | Reply::Aborted(_) | Reply::Abandoned(_) | Reply::Joined(_) | Reply::Published(_) => &[0],
        reply => ledger::places_of_words(reply),
    }
}

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn a_client_reads_the_reply_that_was_written((command, reply) in exchange()) {
        prop_assert_eq!(command.read(written(&reply)), Ok(reply));
    }

    #[test]
    fn a_reply_of_the_wrong_length_is_unexpected((command, reply) in exchange()) {
        let Value::Array(elements) = written(&reply) else { return Ok(()) };
        // A history and a ranking have any number of rows.
        if matches!(command, Command::PolicyHistory(_) | Command::Top(_)) {
            return Ok(());
        }
        let mut short = elements.clone();
        short.pop();
        prop_assert!(command.read(Value::Array(short)).is_err(), "{:?}", elements);
        for surplus in [Value::Integer(0), Value::Null, Value::Text(b"more".to_vec()), Value::Array(vec![])] {
            let long = [elements.clone(), vec![surplus]].concat();
            prop_assert!(command.read(Value::Array(long)).is_err(), "{:?}", elements);
        }
    }

    #[test]
    fn a_reply_with_an_element_of_another_type_is_unexpected(
        (command, reply) in exchange(),
        path in vec(any::<prop::sample::Index>(), 0..3),
    ) {
        let mut value = written(&reply);
        spoil(&mut value, &path);
        prop_assert!(command.read(value.clone()).is_err(), "{:?}", value);
    }

    #[test]
    fn a_word_nobody_knows_is_unexpected((command, reply) in exchange()) {
        for place in places_of_words(&reply) {
            for word in ["", "NOPE", "granted", "Closed"] {
                let Value::Array(mut elements) = written(&reply) else { panic!("an array was written") };
                prop_assert!(matches!(elements[*place], Value::Text(_)));
                elements[*place] = Value::Text(word.into());
                prop_assert!(command.read(Value::Array(elements)).is_err(), "{:?} with {:?}", reply, word);
            }
        }
    }

    #[test]
    fn whatever_is_read_is_all_there_was(command in command(), (_, other) in exchange(), noise in value()) {
        for value in [noise, written(&other)] {
            match command.read(value.clone()) {
                // A map can come in two shapes.
                Ok(reply @ (Reply::Map(_) | Reply::Ledger(_))) => prop_assert_eq!(flattened(written(&reply)), flattened(value)),
                Ok(reply) => prop_assert_eq!(written(&reply), value),
                Err(_) => {}
            }
        }
    }
}

/// As an older protocol has it: maps are arrays of keys and values in turn.
fn flattened(value: Value) -> Value {
    match value {
        Value::Map(pairs) => Value::Array(pairs.into_iter().flat_map(|(key, value)| [key, flattened(value)]).collect()),
        Value::Array(elements) => Value::Array(elements.into_iter().map(flattened).collect()),
        leaf => leaf,
    }
}

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

#[test]
fn a_map_is_the_same_in_either_protocol() {
    let now = Instant::from_us(1_800_000_000_000_000);
    let state = Value::written(|sink| write_state(&view(&Breaker::default(), now), false, now, sink));
    let command = Command::BreakerState(b"k");
    assert_eq!(command.read(state.clone()), Ok(Reply::Map(state.clone())));
    assert_eq!(command.read(flattened(state.clone())), Ok(Reply::Map(state)));
    let row = |owner| Value::Map(vec![(text("owner"), text(owner)), (text("fence"), Value::Integer(7))]);
    let info = Value::Map(vec![
        (text("holders"), Value::Array(vec![row("a"), row("b")])),
        (text("holders_total"), Value::Integer(2)),
        (text("waiters"), Value::Array(vec![])),
    ]);
    for command in [
        Command::LockInfo(InfoCall { key: b"k", limit: 100 }),
        Command::BulkheadInfo(InfoCall { key: b"k", limit: 100 }),
    ] {
        assert_eq!(command.read(info.clone()), Ok(Reply::Map(info.clone())));
        assert_eq!(command.read(flattened(info.clone())), Ok(Reply::Map(info.clone())));
        assert!(command.read(Value::Array(vec![text("holders")])).is_err());
        assert!(command.read(Value::Array(vec![Value::Integer(1), Value::Integer(2)])).is_err());
    }
}

#[test]
fn a_reply_of_the_other_subcommand_is_unexpected() {
    let get = Command::FlightGet(resil_wire::single_flight::FlightGetCall { key: b"k", under: None });
    let lead = Reply::Joined(Joined::Lead { fence: 1, stale: None, waited_ms: 0 });
    assert!(get.read(written(&lead)).is_err());
    let abort = Command::IdempAbort(resil_wire::idempotency::TokenCall { key: b"k", token: b"t" });
    assert!(abort.read(written(&Reply::Abandoned(None))).is_err());
    assert_eq!(abort.read(written(&Reply::Aborted(None))), Ok(Reply::Aborted(None)));
}

#[test]
fn numbers_that_contradict_each_other_are_unexpected() {
    let admit = Command::BreakerAdmit(resil_wire::breaker::Admit { key: b"k", caller: None, options: None });
    let reply = |admitted, permit| {
        let numbers = [Value::Integer(0), Value::Integer(0)];
        Value::Array([vec![Value::Integer(admitted), text("closed"), permit], numbers.to_vec()].concat())
    };
    assert!(admit.read(reply(1, text("0.1.2"))).is_ok());
    assert!(admit.read(reply(0, Value::Null)).is_ok());
    assert!(admit.read(reply(1, Value::Null)).is_err());
    assert!(admit.read(reply(0, text("0.1.2"))).is_err());
    assert!(admit.read(reply(2, text("0.1.2"))).is_err());
    let report = Command::BreakerReport(resil_wire::breaker::ReportCall {
        key: b"k",
        permit: None,
        report: resil_core::circuit_breaker::Report::Ok,
        duration: None,
        correlation: None,
    });
    let reply = |counted, why| {
        let numbers = [Value::Integer(0), Value::Integer(0)];
        Value::Array([vec![Value::Integer(counted), text("closed")], numbers.to_vec(), vec![text(why)]].concat())
    };
    assert!(report.read(reply(1, "counted")).is_ok() && report.read(reply(0, "stale")).is_ok());
    assert!(report.read(reply(0, "counted")).is_err() && report.read(reply(1, "stale")).is_err());
    // A fence is never negative, and who refused is one of the keys.
    let renewed = Value::Array(vec![text("GRANTED"), Value::Integer(-1), Value::Integer(5), Value::Integer(0)]);
    let renew = Command::FlightRenew(resil_wire::idempotency::TokenRenewCall {
        key: b"k",
        token: b"t",
        lease: Span::from_secs(1),
        bind: resil_wire::holding::Bind::None,
    });
    assert!(renew.read(renewed).is_err());
    for (index, fits) in [(-2, false), (-1, true), (0, true), (1, false)] {
        let numbers = Value::Array(vec![Value::Integer(1); 4]);
        let reply = Value::Array(vec![Value::Integer(0), Value::Integer(index), Value::Array(vec![numbers])]);
        assert_eq!(LimitsReply::read(reply, 1).is_ok(), fits, "{index}");
    }
}
