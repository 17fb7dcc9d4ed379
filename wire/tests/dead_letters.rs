//! `RES.DLQ`: what is refused and how, and what core decides as it is written.
//!
//! How to repeat a failing run: see `seed`.

#[allow(dead_code)] // not every test needs all of it
mod arbitrary;
mod presentable;
#[path = "../../core/tests/seed/mod.rs"]
mod seed;

use arbitrary::ledger::{death, given, standing};
use arbitrary::parts::{any_span, bytes, reason, written};
use presentable::{check, is_presentable};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use resil_core::Span;
use resil_core::dead_letters::{
    self as core, Category, Class, ConfigChange, Counting, Diagnosed, Diagnosis, Facts, HoldTarget, Jitter, ListFilter,
    NothingDue, Pause, Place, PurgeRequest, Rate, RetriesChange, Taken,
};
use resil_wire::Refused;
use resil_wire::command::{Allowed, Command, Reply};
use resil_wire::dead_letters::*;
use resil_wire::holding::{Bind, Wait};
use resil_wire::idempotency::TokenRenewCall;
use resil_wire::reply::Value;

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

fn parse(line: &str) -> Result<(), Refused> {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    Command::parse(&words, Allowed::DEFAULT).map(drop)
}

#[track_caller]
fn refuses(line: &str, parts: &[&str]) {
    let line = format!("RES.DLQ {line}");
    check(&line, &parse(&line).expect_err(&line), 450, parts);
}

#[test]
fn what_is_missing_is_named_and_the_usage_shown() {
    refuses("FAIL k", &["missing id", "usage: RES.DLQ FAIL"]);
    refuses("FAIL k i", &["missing ERROR", "usage: RES.DLQ FAIL"]);
    refuses("FAIL k i ERROR", &["missing ERROR"]);
    refuses("FAIL k i ERROR e PAYLOAD", &["missing PAYLOAD"]);
    refuses("PARK k i PAYLOAD p", &["missing AGGREGATE", "usage: RES.DLQ PARK"]);
    refuses("PARK k i AGGREGATE a", &["missing PAYLOAD or REF"]);
    refuses("DONE k", &["missing id"]);
    refuses("DONE k i", &["missing fence", "usage: RES.DLQ DONE"]);
    refuses("DONE k i 1 j", &["missing fence"]);
    refuses("RETURN k DELAY 1s", &["missing id", "usage: RES.DLQ RETURN"]);
    refuses("DIAGNOSE k", &["missing group"]);
    refuses("DIAGNOSE k g h", &["missing CATEGORY", "usage: RES.DLQ DIAGNOSE"]);
    refuses("DIAGNOSE k g CATEGORY poison FIX f", &["missing CAUSE"]);
    refuses("DIAGNOSE k g CATEGORY poison CAUSE c", &["missing FIX"]);
    refuses("DIAGNOSE k g CATEGORY contract CAUSE  FIX f", &["CAUSE"]);
    refuses("DIAGNOSE k g CATEGORY contract CAUSE c FIX ", &["FIX"]);
    refuses("REDRIVE k", &["missing case"]);
    refuses("HOLD k i", &["missing ON or OFF"]);
    refuses("HOLD k AGGREGATE", &["missing AGGREGATE"]);
    refuses("PURGE k", &["missing OLDER"]);
    refuses("CONFIG k", &["missing options", "CLASS, JITTER, CRASHES, RATEMAX, AFTERMAX or PAUSED"]);
    refuses("CONFIG k ACTOR ann", &["missing options"]);
}

#[test]
fn what_is_wrong_is_said_with_what_is_allowed() {
    refuses("FAIL k i ERROR e CLASS fatal", &["CLASS must be one of transient, business, external", "got 'fatal'"]);
    refuses("FAIL k i ERROR e FENCE 0", &["FENCE", "from 1 to", "got '0'"]);
    refuses("FAIL k i ERROR e SCHEMA -1", &["SCHEMA", "from 0 to 4294967295"]);
    refuses("FAIL k i ERROR e PRIOR x", &["PRIOR", "whole number"]);
    refuses("FAIL k i ERROR e AFTER soon", &["AFTER", "duration"]);
    refuses("FAIL k i ERROR e PAYLOAD p REF r", &["only one of PAYLOAD and REF"]);
    refuses("FAIL k i ERROR e NOCOUNT FINAL", &["only one of NOCOUNT and FINAL"]);
    refuses("FAIL k i ERROR e ERROR e", &["ERROR is given twice"]);
    refuses("FAIL k i ERROR e TYPE t TYPE t", &["TYPE is given twice"]);
    refuses("FAIL k i ERROR e LIMIT 3", &["unexpected argument 'LIMIT'"]);
    refuses("TAKE k t 30s COUNT 0", &["COUNT", "got '0'"]);
    refuses("PURGE k OLDER 89d", &["OLDER", "from 90d", "got '89d'"]);
    refuses("PURGE k OLDER 90d STATE waiting", &["STATE must be one of dead, resolved, archived", "got 'waiting'"]);
    refuses("DIAGNOSE k g CATEGORY business CAUSE c FIX f", &["business needs a DECISION"]);
    refuses("DIAGNOSE k g CATEGORY poison CAUSE c FIX f AUTO 1h", &["AUTO needs CATEGORY infrastructure"]);
    refuses("DIAGNOSE k g CATEGORY bad CAUSE c FIX f", &["infrastructure, contract, business, poison"]);
    refuses("REDRIVE k 0", &["case", "from 1 to"]);
    refuses("REDRIVE k 1 RATE 5 0", &["period"]);
    refuses("HOLD k i MAYBE", &["must be ON or OFF", "got 'MAYBE'"]);
    refuses("INFO k CURSOR 5", &["CURSOR and LIMIT are for lists"]);
    refuses("INFO k CASE 3 LIMIT 5", &["CURSOR and LIMIT are for lists"]);
    refuses("INFO k GROUPS CASES", &["only one of GROUPS"]);
    refuses("LIST k SINCE -1", &["SINCE", "from 0"]);
    refuses("LIST k LIMIT 1001", &["LIMIT", "from 1 to 1000"]);
    refuses("CONFIG k CLASS transient", &["CLASS transient needs RETRIES, BASE or CAP"]);
    refuses("CONFIG k CLASS transient CAP 1s CLASS transient CAP 1s", &["CLASS transient is given twice"]);
    refuses("CONFIG k CLASS transient BASE 99ms", &["BASE", "from 100ms to 1d"]);
    refuses("CONFIG k RETRIES 3", &["unexpected argument 'RETRIES'"]);
    refuses("CONFIG k JITTER some", &["JITTER must be full, none or plus pct"]);
    refuses("CONFIG k JITTER plus 101", &["plus", "from 1 to 100"]);
    refuses("CONFIG k PAUSED no FOR 1h", &["unexpected argument 'FOR'"]);
    refuses("CONFIG k PAUSED maybe", &["PAUSED must be yes or no"]);
    let pairs = " i 1".repeat(1_001);
    refuses(&format!("DONE k{pairs}"), &["at most 1000 entries", "got 1001"]);
    let groups = " g".repeat(101);
    refuses(&format!("DIAGNOSE k{groups} CATEGORY poison CAUSE c FIX f"), &["at most 100 groups", "got 101"]);
}

#[test]
fn a_message_is_refused_for_id_numbers_or_size() {
    let long = vec![b'x'; 200_000];
    let empty: &[u8] = b"";
    let fail = |id: &'static [u8], text: &[u8]| {
        let words: [&[u8]; 20] = [
            b"RES.DLQ",
            b"FAIL",
            b"k",
            id,
            b"ERROR",
            text,
            b"REF",
            text,
            b"TYPE",
            text,
            b"SOURCE",
            text,
            b"AGGREGATE",
            text,
            b"HEADERS",
            text,
            b"GROUP",
            text,
            b"SCHEMA",
            b"0",
        ];
        Command::parse(&words, Allowed::DEFAULT).map(drop)
    };
    assert_eq!(fail(b"i", &long), Ok(()));
    assert_eq!(fail(b"i", empty), Ok(()));
    for (id, len) in [(&[b'i'; 513][..], 513), (b"", 0)] {
        check("FAIL", &fail(id, b"x").expect_err("an id"), 450, &["id", "from 1 to 512 bytes", &format!("got {len}")]);
    }
    for words in [
        [&b"RES.DLQ"[..], b"FAIL", b"k", b"i", b"ERROR", b"e", b"PAYLOAD", &long],
        [b"RES.DLQ", b"PARK", b"k", b"i", b"AGGREGATE", b"a", b"PAYLOAD", &long],
    ] {
        let tight = Allowed { payload_max: 199_999, ..Allowed::DEFAULT };
        let refused = Command::parse(&words, tight).expect_err("it is too big");
        assert_eq!(
            refused.text(),
            "TOOBIG PAYLOAD can have at most 199999 bytes, got 200000; store it elsewhere and give REF"
        );
        assert!(Command::parse(&words, Allowed { payload_max: 200_000, ..tight }).is_ok());
    }
}

#[test]
fn names_that_are_words_of_the_call_are_names() {
    let hold = |line: &str| {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        match Command::parse(&words, Allowed::DEFAULT) {
            Ok(Command::DlqHold(call)) => format!("{:?} {}", call.target, call.is_on),
            other => panic!("{line}: {other:?}"),
        }
    };
    let of = |target: HoldTarget<'_>, is_on: bool| format!("{target:?} {is_on}");
    assert_eq!(hold("RES.DLQ HOLD k AGGREGATE on"), of(HoldTarget::Id(b"AGGREGATE"), true));
    assert_eq!(hold("RES.DLQ HOLD k AGGREGATE ON OFF"), of(HoldTarget::Aggregate(b"ON"), false));
    assert_eq!(hold("RES.DLQ HOLD k ON ON ACTOR a"), of(HoldTarget::Id(b"ON"), true));
    assert_eq!(hold("RES.DLQ HOLD k AGGREGATE off ACTOR on"), of(HoldTarget::Id(b"AGGREGATE"), false));
    let call = ReturnCall { key: b"k", delay: Span::ZERO, entries: [(&b"delay"[..], 7)].into_iter().collect() };
    assert_eq!(Command::DlqReturn(call).words().join(&b" "[..]), b"RES.DLQ RETURN k DELAY 0 delay 7");
    let diagnosis = Diagnosis {
        groups: vec![b"g", b"Category"],
        category: Category::Poison,
        cause: b"c",
        fix: b"f",
        decision: b"",
        auto: None,
    };
    let call = Command::DlqDiagnose(DiagnoseCall { key: b"k", diagnosis, by: By::default() });
    assert!(call.check(&Allowed::DEFAULT).is_err(), "it cannot be written");
}

const TEXT: [u8; 5_000] = [b'x'; 5_000];

/// At, below and above every bound there is.
fn edge_span() -> impl Strategy<Value = Span> {
    let days = |days: i64| Span::from_days(days).as_us();
    let edges = vec![0, 1_000, 10_000, 100_000, 600_000_000, days(1), days(90), days(366), days(3_660)];
    (select(edges), -1..=1i64).prop_map(|(edge, by)| Span::from_us(edge + by))
}

fn edge_number() -> impl Strategy<Value = u32> {
    let edges = vec![1, 100, 1_000, 5_000, 100_000_000, 1_000_000_000, u32::MAX - 1];
    (select(edges), 0..=2u32).prop_map(|(edge, by)| edge - 1 + by)
}

fn edge_text() -> impl Strategy<Value = &'static [u8]> {
    select(vec![0, 1, 512, 513, 1_024, 1_025, 2_049, 2_050, 4_096, 4_097]).prop_map(|len| &TEXT[..len])
}

fn edge_commands(
    (a, b, c): (Span, Span, Span),
    (m, n, o): (u32, u32, u32),
    (s, t): (&'static [u8], &'static [u8]),
) -> Vec<Command<'static>> {
    let key = &b"k"[..];
    let by = By { actor: Some(t), correlation: Some(s) };
    let facts = Facts { id: s, payload: Some(t), aggregate: t, schema: Some(m), ..Facts::default() };
    let both = Facts { reference: Some(t), ..facts };
    let fence = Some(u64::from(m) << 24);
    let class = Some(Class::Business);
    let fail = FailCall {
        key,
        facts,
        error: t,
        fence,
        class,
        group: None,
        after: Some(a),
        prior: n,
        counting: Counting::Final,
    };
    let filter = ListFilter { kind: Some(s), group: Some(t), aggregate: Some(t), case: Some(m), ..Default::default() };
    let entries = [(s, u64::from(m) << 24), (&b"i"[..], 1)].into_iter().collect();
    let bind = Bind::to(o.into()).with_grace(c);
    let redrive = RedriveCall {
        id: Some(s),
        kind: Some(t),
        count: Some(n),
        rate: Some(Rate { count: o, period: a }),
        first: m,
        by,
        ..RedriveCall::of(key, m)
    };
    let retries = RetriesChange { most: Some(m), base: Some(a), cap: Some(b) };
    let change = ConfigChange {
        retries: [retries, RetriesChange::default(), RetriesChange::default()],
        jitter: Some(Jitter::Plus((n % 103) as u8)),
        crashes: Some(n),
        rate_max: Some(Rate { count: o, period: c }),
        after_max: Some(b),
        paused: Some(Pause::For(c)),
    };
    let categories = Category::ALL.into_iter().map(|category| {
        let auto = (m % 2 == 0).then_some(a);
        let diagnosis = Diagnosis { groups: vec![s, t], category, cause: s, fix: t, decision: t, auto };
        Command::DlqDiagnose(DiagnoseCall { key, diagnosis, by })
    });
    let places = Place::ALL.into_iter().map(|place| {
        let request = PurgeRequest { older: a, place: Some(place), limit: n as usize };
        Command::DlqPurge(PurgeCall { key, request, by })
    });
    let aspects = [LedgerAspect::Counts, LedgerAspect::Groups, LedgerAspect::Case(m)];
    let infos = aspects.map(|aspect| {
        Command::DlqInfo(LedgerInfoCall { key, aspect, part: Part { cursor: o.into(), limit: n as usize } })
    });
    let commands = [
        Command::DlqFail(FailCall { facts: both, ..fail.clone() }),
        Command::DlqFail(fail),
        Command::DlqPark(ParkCall { key, facts }),
        Command::DlqPark(ParkCall { key, facts: Facts { payload: None, ..facts } }),
        Command::DlqTake(TakeCall { key, token: s, lease: a, count: m, wait: Wait::blocked(b), bind, meta: t }),
        Command::DlqDone(DoneCall { key, entries }),
        Command::DlqRenew(TokenRenewCall { key, token: s, lease: a, bind }),
        Command::DlqReturn(ReturnCall { key, delay: a, entries: [(s, 1)].into_iter().collect() }),
        Command::DlqGet(EntryCall { key, id: s, only_state: false }),
        Command::DlqList(ListCall { key, filter, part: Part { cursor: 0, limit: m as usize } }),
        Command::DlqRedrive(redrive),
        Command::DlqStop(StopCall { key, case: m, by }),
        Command::DlqClose(CloseCall { key, case: m, discard: true, by }),
        Command::DlqHold(HoldCall { key, target: HoldTarget::Aggregate(s), is_on: true, reason: Some(t), by }),
        Command::DlqHold(HoldCall { key, target: HoldTarget::Id(s), is_on: true, reason: Some(t), by }),
        Command::DlqSeen(SeenCall { key, alert: m.into(), by }),
        Command::DlqConfig(LedgerConfigCall { key, change, by }),
        Command::DlqConfig(LedgerConfigCall { key, change: ConfigChange::default(), by: By::default() }),
        Command::DlqDone(DoneCall { key, entries: Fenced::new() }),
        Command::DlqReturn(ReturnCall { key, delay: Span::ZERO, entries: Fenced::new() }),
    ];
    commands.into_iter().chain(categories).chain(places).chain(infos).collect()
}

proptest! {
    #![proptest_config(seed::config())]

    #[test]
    fn a_call_is_refused_as_its_words_are(
        spans in (edge_span(), edge_span(), edge_span()),
        numbers in (edge_number(), edge_number(), edge_number()),
        texts in (edge_text(), edge_text()),
    ) {
        let allowed = Allowed { payload_max: 2_049, ..Allowed::DEFAULT };
        for command in edge_commands(spans, numbers, texts) {
            let words = command.words();
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let parsed = Command::parse(&words, allowed).map(drop);
            prop_assert_eq!(command.check(&allowed), parsed, "{:?}", command);
        }
    }

    #[test]
    fn time_to_wait_rounds_up_time_to_rely_down(
        span in any_span(), waited in any_span(), entries in vec(given(), 0..3), fence in 1..1_000u64,
    ) {
        let (down, up) = (|span: Span| span.as_us() / 1_000, |span: Span| (span.as_us() + 999) / 1_000);
        let retry = core::Failed::Retry { attempt: 3, delay: span };
        prop_assert_eq!(Failed::try_from(retry), Ok(Failed::Retry { attempt: 3, delay_ms: up(span) }));
        let due = NothingDue { next: Some(span) };
        prop_assert_eq!(TakenReply::nothing(due), TakenReply::Nothing { next_due_ms: up(span) });
        prop_assert_eq!(TakenReply::timeout(due), TakenReply::Timeout { next_due_ms: up(span) });
        let renewed = core::BatchRenewed::Granted { entries: 7, lease: span };
        prop_assert_eq!(BatchRenewed::from(renewed), BatchRenewed::Granted { entries: 7, lease_ms: down(span) });
        let taken = Taken { fence, waited, lease: span, entries: entries.clone() };
        let reply = TakenReply::Taken { waited_ms: down(waited), lease_ms: down(span), entries };
        prop_assert_eq!(TakenReply::from(taken), reply);
    }

    #[test]
    fn a_failure_is_reported_as_it_was_decided(
        standing in standing(), attempt in any::<u32>(), group in bytes(), death in death(), reason in reason(), position in 1..99usize,
    ) {
        let known = Failed::try_from(core::Failed::Known { standing, attempt });
        prop_assert_eq!(known, Ok(Failed::Known { standing, attempt }));
        let dead = core::Failed::Dead { deaths: attempt, group: group.clone().into(), reason: death };
        prop_assert_eq!(Failed::try_from(dead), Ok(Failed::Dead { deaths: attempt, group, reason: death }));
        prop_assert_eq!(Failed::try_from(core::Failed::Lost(reason)), Ok(Failed::Lost(reason)));
        prop_assert_eq!(BatchRenewed::from(core::BatchRenewed::Lost(reason)), BatchRenewed::Lost(reason));
        let known = Parked::try_from(core::Parked::Known { standing, attempt });
        prop_assert_eq!(known, Ok(Parked::Known { standing, attempt }));
        let behind = Parked::try_from(core::Parked::Behind { position });
        prop_assert_eq!(behind, Ok(Parked::Behind { position }));
    }

    #[test]
    fn a_taken_entry_has_its_fields_by_name(entry in given()) {
        let reply = Reply::Taken(TakenReply::Taken { waited_ms: 1, lease_ms: 2, entries: vec![entry.clone()] });
        let value = written(&reply);
        let row = value.array().expect("four")[3].array().expect("entries")[0].array().expect("an entry");
        let fields = row[5].array().expect("fields");
        let field = |name: &str| fields.chunks(2).find(|pair| pair[0] == text(name)).map(|pair| pair[1].clone());
        let texts = |bytes: &[u8]| (!bytes.is_empty()).then(|| Value::Text(bytes.to_vec()));
        let message = &entry.message;
        prop_assert_eq!(&row[4], &message.payload().map_or(Value::Null, |bytes| Value::Text(bytes.to_vec())));
        prop_assert_eq!(field("type"), texts(message.kind()));
        prop_assert_eq!(field("source"), texts(message.source()));
        prop_assert_eq!(field("aggregate"), texts(message.aggregate()));
        prop_assert_eq!(field("headers"), texts(message.headers()));
        prop_assert_eq!(field("ref"), texts(message.reference().unwrap_or_default()));
        prop_assert_eq!(field("group"), texts(&entry.group));
        prop_assert_eq!(field("error"), texts(&entry.error));
        prop_assert_eq!(field("class"), Some(text(entry.class.text())));
        prop_assert_eq!(field("deaths"), (entry.deaths > 0).then(|| Value::Integer(entry.deaths.into())));
        prop_assert_eq!(field("schema"), message.schema().map(|schema| Value::Integer(schema.into())));
        prop_assert_eq!(field("case"), entry.case.map(|case| Value::Integer(case.into())));
    }
}

#[test]
fn what_cannot_be_is_an_error_with_its_code() {
    let said = |refused: Option<Refused>, code: &str| {
        let refused = refused.expect(code);
        assert!(refused.text().starts_with(&format!("{code} ")) && refused.text().is_ascii(), "{refused}");
    };
    said(Failed::try_from(core::Failed::Conflict).err(), "CONFLICT");
    said(Parked::try_from(core::Parked::Conflict).err(), "CONFLICT");
    said(Failed::try_from(core::Failed::Full).err(), "FULL");
    said(Parked::try_from(core::Parked::Full).err(), "FULL");
    said(Purged::try_from(core::Purged::ClockJumped).err(), "ERR");
    said(Closed::of(7, core::Closed::NoCase).err(), "ERR");
    said(diagnosed(Diagnosed::TooMany).err(), "ERR");
    let unknown = diagnosed(Diagnosed::UnknownGroup((*b"a\r\n").into())).expect_err("unknown");
    assert!(is_presentable(&unknown, 200) && unknown.text().contains(r"'a\r\n'"), "{unknown}");
    assert_eq!(diagnosed(Diagnosed::Case(7)), Ok(7));
    assert_eq!(Parked::try_from(core::Parked::Free), Ok(Parked::Free));
    assert_eq!(Closed::of(7, core::Closed::Closed), Ok(Closed::Closed));
    assert_eq!(Closed::of(7, core::Closed::Open(3)), Ok(Closed::Open { unresolved: 3 }));
    assert_eq!(Purged::try_from(core::Purged::Purged { purged: 2, left: 5 }), Ok(Purged { purged: 2, left: 5 }));
    assert_eq!(TakenReply::nothing(NothingDue { next: None }), TakenReply::Nothing { next_due_ms: -1 });
}
