//! Calls of `RES.DLQ`, whose pages cannot say what fits together, and their replies.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use resil_core::dead_letters::{
    Category, Class, ConfigChange, Counting, Death, Diagnosis, Ended, Facts, GivenEntry, HoldTarget, Jitter,
    ListFilter, Matched, Message, Pause, Place, PurgeRequest, Rate, Redriven, Refusal, RetriesChange, Standing,
};
use resil_core::limits::{
    BACKOFF_LEAST, BACKOFF_MAX, CASE_TEXT_MAX, CELLS_MAX, COST_MAX, FILL_MAX, INSTANT_MAX_US, LEDGER_ENTRIES_CEILING,
    PERIOD_MAX, PURGE_MAX, REDRIVE_FIRST, RETENTION, RETRIES_MAX, TAKE_MAX, TEXT_MAX, TTL_MAX,
};
use resil_core::{Instant, Span};
use resil_wire::command::{Command, Reply};
use resil_wire::dead_letters::*;
use resil_wire::idempotency::TokenRenewCall;
use resil_wire::reply::Value;

use super::parts::{bytes as owned, reason};
use super::{bind, bytes, count, fence, key, lease, owner, span, spread, wait};

fn by() -> impl Strategy<Value = By<'static>> {
    let text = || option::of(bytes(1, TEXT_MAX));
    (text(), text()).prop_map(|(actor, correlation)| By { actor, correlation })
}

fn class() -> impl Strategy<Value = Class> {
    select(Class::ALL.to_vec())
}

pub fn instant() -> impl Strategy<Value = Instant> {
    spread(0, INSTANT_MAX_US / 1_000).prop_map(|ms| Instant::from_us(ms * 1_000))
}

pub fn rate() -> impl Strategy<Value = Rate> {
    (count(1, CELLS_MAX), span(Span::from_us(1), PERIOD_MAX)).prop_map(|(count, period)| Rate { count, period })
}

/// Never both a payload and a reference. Texts may be longer than what is kept of them.
fn facts() -> impl Strategy<Value = Facts<'static>> {
    let text = || prop_oneof![Just(b"".as_slice()), bytes(1, 3_000)];
    let body = option::of((any::<bool>(), bytes(0, 5_000)));
    (owner(), body, text(), text(), text(), option::of(any::<u32>()), text()).prop_map(
        |(id, body, kind, source, aggregate, schema, headers)| {
            let (payload, reference) = match body {
                Some((true, reference)) => (None, Some(reference)),
                Some((false, payload)) => (Some(payload), None),
                None => (None, None),
            };
            Facts { id, payload, reference, kind, source, aggregate, schema, headers }
        },
    )
}

fn entries() -> impl Strategy<Value = Fenced<'static>> {
    let id = prop_oneof![9 => owner(), 1 => Just(b"delay".as_slice())];
    prop_oneof![
        (id, fence()).prop_map(|entry| [entry].into_iter().collect()),
        vec((owner(), fence()), 2..5).prop_map(Fenced::from_vec),
    ]
}

fn bringing() -> Vec<BoxedStrategy<Command<'static>>> {
    let counting = select(vec![Counting::Counted, Counting::NotCounted, Counting::Final]);
    let prior = prop_oneof![Just(0), 0..=COST_MAX];
    let after = option::of(span(Span::ZERO, FILL_MAX));
    let how = (option::of(fence()), option::of(class()), option::of(bytes(1, 3_000)), after, prior, counting);
    let fail = (key(), facts(), bytes(0, 3_000), how).prop_map(
        |(key, facts, error, (fence, class, group, after, prior, counting))| {
            Command::DlqFail(FailCall { key, facts, error, fence, class, group, after, prior, counting })
        },
    );
    let park = (key(), facts(), bytes(1, 2_000)).prop_map(|(key, facts, aggregate)| {
        let payload = facts.payload.or(facts.reference.is_none().then_some(b"".as_slice()));
        Command::DlqPark(ParkCall { key, facts: Facts { aggregate, payload, ..facts } })
    });
    let counts = prop_oneof![Just(1), count(1, u32::MAX)];
    let meta = prop_oneof![Just(b"".as_slice()), owner()];
    let take = (key(), owner(), lease(), counts, wait(), bind(), meta).prop_map(
        |(key, token, lease, count, wait, bind, meta)| {
            Command::DlqTake(TakeCall { key, token, lease, count, wait, bind, meta })
        },
    );
    let done = (key(), entries()).prop_map(|(key, entries)| Command::DlqDone(DoneCall { key, entries }));
    let renew = (key(), owner(), lease(), bind())
        .prop_map(|(key, token, lease, bind)| Command::DlqRenew(TokenRenewCall { key, token, lease, bind }));
    let delay = prop_oneof![Just(Span::ZERO), span(Span::ZERO, BACKOFF_MAX)];
    let giving_back = (key(), delay, entries())
        .prop_map(|(key, delay, entries)| Command::DlqReturn(ReturnCall { key, delay, entries }));
    vec![fail.boxed(), park.boxed(), take.boxed(), done.boxed(), renew.boxed(), giving_back.boxed()]
}

fn part() -> impl Strategy<Value = Part> {
    let cursor = prop_oneof![Just(0), spread(0, i64::MAX).prop_map(i64::cast_unsigned)];
    let limit = prop_oneof![Just(Part::default().limit), 1..=TAKE_MAX];
    (cursor, limit).prop_map(|(cursor, limit)| Part { cursor, limit })
}

fn showing() -> Vec<BoxedStrategy<Command<'static>>> {
    let get = (key(), owner(), any::<bool>())
        .prop_map(|(key, id, only_state)| Command::DlqGet(EntryCall { key, id, only_state }));
    let text = || option::of(bytes(0, 1_024));
    let filter = (
        (option::of(select(Place::ALL.to_vec())), text(), option::of(class())),
        (option::of(bytes(1, 2_049)), text(), option::of(count(1, u32::MAX))),
        (option::of(instant()), option::of(instant())),
    );
    let list = (key(), filter, part()).prop_map(
        |(key, ((place, kind, class), (group, aggregate, case), (since, until)), part)| {
            let filter = ListFilter { place, kind, class, group, aggregate, case, since, until };
            Command::DlqList(ListCall { key, filter, part })
        },
    );
    let lists = select(vec![LedgerAspect::Groups, LedgerAspect::Cases, LedgerAspect::Alerts, LedgerAspect::Audit]);
    let maps = prop_oneof![
        Just(LedgerAspect::Counts),
        Just(LedgerAspect::Config),
        count(1, u32::MAX).prop_map(LedgerAspect::Case),
    ];
    let asked = prop_oneof![(lists, part()), maps.prop_map(|aspect| (aspect, Part::default()))];
    let info = (key(), asked).prop_map(|(key, (aspect, part))| Command::DlqInfo(LedgerInfoCall { key, aspect, part }));
    vec![get.boxed(), list.boxed(), info.boxed()]
}

fn governing() -> Vec<BoxedStrategy<Command<'static>>> {
    let text = || bytes(1, CASE_TEXT_MAX);
    // Only the first may have the name of the option behind them.
    let groups = (prop_oneof![9 => bytes(1, 2_049), 1 => Just(b"category".as_slice())], vec(bytes(9, 30), 0..4))
        .prop_map(|(first, rest)| [vec![first], rest].concat());
    let auto = option::of(span(Span::from_ms(1), RETENTION));
    let diagnose = (key(), groups, select(Category::ALL.to_vec()), (text(), text(), option::of(text())), auto, by())
        .prop_map(|(key, groups, category, (cause, fix, decision), auto, by)| {
            let decision = decision.unwrap_or(if category == Category::Business { b"pay" } else { b"" });
            let auto = auto.filter(|_| category == Category::Infrastructure);
            let diagnosis = Diagnosis { groups, category, cause, fix, decision, auto };
            Command::DlqDiagnose(DiagnoseCall { key, diagnosis, by })
        });
    let kept = || option::of(bytes(0, 1_024));
    let scope = (option::of(owner()), kept(), kept(), option::of(instant()), option::of(instant()));
    let first = prop_oneof![Just(REDRIVE_FIRST), count(1, TAKE_MAX as u32)];
    let counts = option::of(count(1, LEDGER_ENTRIES_CEILING as u32));
    let way = (counts, option::of(rate()), first, any::<bool>(), any::<bool>());
    let redrive = (key(), count(1, u32::MAX), scope, way, by()).prop_map(
        |(key, case, (id, kind, aggregate, since, until), (count, rate, first, oneshot, dry_run), by)| {
            Command::DlqRedrive(RedriveCall {
                key,
                case,
                id,
                kind,
                aggregate,
                since,
                until,
                count,
                rate,
                first,
                oneshot,
                dry_run,
                by,
            })
        },
    );
    let stop =
        (key(), count(1, u32::MAX), by()).prop_map(|(key, case, by)| Command::DlqStop(StopCall { key, case, by }));
    let close = (key(), count(1, u32::MAX), any::<bool>(), by())
        .prop_map(|(key, case, discard, by)| Command::DlqClose(CloseCall { key, case, discard, by }));
    vec![diagnose.boxed(), redrive.boxed(), stop.boxed(), close.boxed()]
}

fn keeping() -> Vec<BoxedStrategy<Command<'static>>> {
    // Names that are words of the call, too.
    let odd = || select(vec![&b"AGGREGATE"[..], b"aggregate", b"on", b"OFF"]);
    let target = prop_oneof![
        prop_oneof![owner().boxed(), odd().boxed()].prop_map(HoldTarget::Id),
        prop_oneof![bytes(1, 1_024).boxed(), odd().boxed()].prop_map(HoldTarget::Aggregate),
    ];
    let hold = (key(), target, any::<bool>(), option::of(bytes(1, TEXT_MAX)), by())
        .prop_map(|(key, target, is_on, reason, by)| Command::DlqHold(HoldCall { key, target, is_on, reason, by }));
    let place = option::of(select(vec![Place::Dead, Place::Resolved, Place::Archived]));
    let limit = prop_oneof![Just(PURGE_MAX), 1..=PURGE_MAX];
    let purge = (key(), span(RETENTION, FILL_MAX), place, limit, by()).prop_map(|(key, older, place, limit, by)| {
        Command::DlqPurge(PurgeCall { key, request: PurgeRequest { older, place, limit }, by })
    });
    let seen = (key(), spread(1, i64::MAX), by())
        .prop_map(|(key, alert, by)| Command::DlqSeen(SeenCall { key, alert: alert as u64, by }));
    vec![hold.boxed(), purge.boxed(), seen.boxed(), config().boxed()]
}

fn config() -> impl Strategy<Value = Command<'static>> {
    let backoff = || option::of(span(BACKOFF_LEAST, BACKOFF_MAX));
    let retries = || {
        (option::of(0..=RETRIES_MAX), backoff(), backoff()).prop_map(|(most, base, cap)| RetriesChange {
            most,
            base,
            cap,
        })
    };
    let jitter = prop_oneof![Just(Jitter::Full), Just(Jitter::None), (1..=100u8).prop_map(Jitter::Plus)];
    let pause = prop_oneof![Just(Pause::On), Just(Pause::Off), span(Span::from_ms(1), TTL_MAX).prop_map(Pause::For)];
    let others = (
        option::of(jitter),
        option::of(1..=RETRIES_MAX),
        option::of(rate()),
        option::of(span(Span::ZERO, BACKOFF_MAX)),
        option::of(pause),
    );
    (key(), [retries(), retries(), retries()], others, by())
        .prop_map(|(key, retries, (jitter, crashes, rate_max, after_max, paused), by)| {
            let change = ConfigChange { retries, jitter, crashes, rate_max, after_max, paused };
            LedgerConfigCall { key, change, by }
        })
        .prop_filter("changes something", |call| call.change != ConfigChange::default())
        .prop_map(Command::DlqConfig)
}

pub fn calls() -> Vec<BoxedStrategy<Command<'static>>> {
    [bringing(), showing(), governing(), keeping()].concat()
}

pub fn standing() -> impl Strategy<Value = Standing> {
    select(Standing::ALL.to_vec())
}

pub fn death() -> impl Strategy<Value = Death> {
    select(Death::ALL.to_vec())
}

/// As a taker gets it: nothing of it is longer than what is kept.
pub fn given() -> impl Strategy<Value = GivenEntry> {
    let text = || prop_oneof![Just(b"".as_slice()), bytes(1, 1_024)];
    let message =
        (facts(), [text(), text(), text(), text()]).prop_map(|(facts, [kind, source, aggregate, headers])| {
            let reference = facts.reference.filter(|text| !text.is_empty()).map(|text| &text[..text.len().min(1_024)]);
            Message::new(&Facts { kind, source, aggregate, headers, reference, ..facts })
        });
    let shared = || text().prop_map(Arc::<[u8]>::from);
    let numbers = (fence(), any::<u32>(), any::<u32>(), any::<u32>(), option::of(any::<u32>()));
    (message, numbers, class(), shared(), shared()).prop_map(
        |(message, (fence, attempt, lapses, deaths, case), class, group, error)| GivenEntry {
            message,
            fence,
            attempt,
            lapses,
            class,
            group,
            deaths,
            error,
            case,
        },
    )
}

fn ended() -> impl Strategy<Value = Ended> {
    prop_oneof![Just(Ended::Ended), reason().prop_map(Ended::Lost)]
}

fn matched() -> impl Strategy<Value = Matched> {
    let sample = vec(owned().prop_map(Vec::into_boxed_slice), 0..4);
    (any::<u32>(), any::<bool>(), sample).prop_map(|(count, is_complete, sample)| Matched {
        count: count as usize,
        is_complete,
        sample,
    })
}

fn map(value: BoxedStrategy<Value>) -> impl Strategy<Value = Value> {
    vec((owned().prop_map(Value::Text), value), 0..5).prop_map(Value::Map)
}

/// Any reply that `command` can get, with `value` anywhere in its maps; `None` if it is no call of a ledger.
pub fn reply_to(command: &Command<'_>, value: BoxedStrategy<Value>) -> Option<BoxedStrategy<Reply>> {
    let known = (standing(), any::<u32>());
    let list = (any::<i64>(), vec(map(value.clone()), 0..4))
        .prop_map(|(cursor, rows)| LedgerReply::List { cursor: cursor.unsigned_abs() >> 1, rows });
    let map = map(value).prop_map(LedgerReply::Map);
    let nothing = Just(LedgerReply::Nothing);
    Some(match command {
        Command::DlqFail(_) => prop_oneof![
            (any::<u32>(), any::<i64>()).prop_map(|(attempt, delay_ms)| Failed::Retry { attempt, delay_ms }),
            (any::<u32>(), owned(), death()).prop_map(|(deaths, group, reason)| Failed::Dead { deaths, group, reason }),
            known.prop_map(|(standing, attempt)| Failed::Known { standing, attempt }),
            reason().prop_map(Failed::Lost),
        ]
        .prop_map(Reply::Failed)
        .boxed(),
        Command::DlqPark(_) => prop_oneof![
            Just(Parked::Free),
            any::<u32>().prop_map(|position| Parked::Behind { position: position as usize }),
            known.prop_map(|(standing, attempt)| Parked::Known { standing, attempt }),
        ]
        .prop_map(Reply::Parked)
        .boxed(),
        Command::DlqTake(_) => prop_oneof![
            (any::<i64>(), any::<i64>(), vec(given(), 1..4))
                .prop_map(|(waited_ms, lease_ms, entries)| TakenReply::Taken { waited_ms, lease_ms, entries }),
            any::<i64>().prop_map(|next_due_ms| TakenReply::Nothing { next_due_ms }),
            any::<i64>().prop_map(|next_due_ms| TakenReply::Timeout { next_due_ms }),
        ]
        .prop_map(Reply::Taken)
        .boxed(),
        Command::DlqDone(call) => vec(ended(), call.entries.len()).prop_map(Reply::Done).boxed(),
        Command::DlqReturn(call) => vec(ended(), call.entries.len()).prop_map(Reply::Returned).boxed(),
        Command::DlqRenew(_) => prop_oneof![
            (any::<u32>(), any::<i64>())
                .prop_map(|(entries, lease_ms)| BatchRenewed::Granted { entries: entries as usize, lease_ms }),
            reason().prop_map(BatchRenewed::Lost),
        ]
        .prop_map(Reply::BatchRenewed)
        .boxed(),
        Command::DlqGet(call) if call.only_state => {
            prop_oneof![1 => nothing, 7 => standing().prop_map(LedgerReply::State)].prop_map(Reply::Ledger).boxed()
        }
        Command::DlqGet(_) => prop_oneof![1 => nothing, 4 => map].prop_map(Reply::Ledger).boxed(),
        Command::DlqList(_) => list.prop_map(Reply::Ledger).boxed(),
        Command::DlqInfo(call) => match call.aspect {
            LedgerAspect::Counts | LedgerAspect::Config => map.prop_map(Reply::Ledger).boxed(),
            LedgerAspect::Case(_) => prop_oneof![1 => nothing, 4 => map].prop_map(Reply::Ledger).boxed(),
            _ => list.prop_map(Reply::Ledger).boxed(),
        },
        Command::DlqDiagnose(_) | Command::DlqHold(_) | Command::DlqSeen(_) => {
            any::<i64>().prop_map(Reply::Number).boxed()
        }
        Command::DlqRedrive(_) => prop_oneof![
            matched().prop_map(Redriven::Started),
            matched().prop_map(Redriven::DryRun),
            select(Refusal::ALL.to_vec()).prop_map(Redriven::Refused),
        ]
        .prop_map(Reply::Redriven)
        .boxed(),
        Command::DlqStop(_) => map
            .prop_map(|shown| match shown {
                LedgerReply::Map(map) => Reply::Map(map),
                other => Reply::Ledger(other),
            })
            .boxed(),
        Command::DlqClose(_) => prop_oneof![
            Just(Closed::Closed),
            any::<u32>().prop_map(|unresolved| Closed::Open { unresolved: unresolved as usize }),
        ]
        .prop_map(Reply::Closed)
        .boxed(),
        Command::DlqPurge(_) => {
            any::<[i64; 2]>().prop_map(|[purged, left]| Reply::Purged(Purged { purged, left })).boxed()
        }
        Command::DlqConfig(_) => Just(Reply::Configured(Configured)).boxed(),
        _ => return None,
    })
}

/// Where a reply has a word out of a few.
pub fn places_of_words(reply: &Reply) -> &'static [usize] {
    match reply {
        Reply::Failed(Failed::Dead { .. }) => &[0, 3],
        Reply::Failed(Failed::Known { .. } | Failed::Lost(_)) | Reply::Parked(Parked::Known { .. }) => &[0, 1],
        Reply::BatchRenewed(BatchRenewed::Lost(_)) | Reply::Redriven(Redriven::Refused(_)) => &[0, 1],
        Reply::Failed(_) | Reply::Parked(_) | Reply::Taken(_) | Reply::BatchRenewed(_) => &[0],
        Reply::Redriven(_) | Reply::Closed(_) => &[0],
        Reply::Done(ended) | Reply::Returned(ended) => match ended.as_slice() {
            [Ended::Ended] => &[0],
            [Ended::Lost(_)] => &[0, 1],
            _ => &[],
        },
        _ => &[],
    }
}
