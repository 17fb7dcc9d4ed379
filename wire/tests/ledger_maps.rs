//! What is shown of a ledger: every field has its name and its value, and is read alike in either protocol.

use resil_core::dead_letters::{
    Alert, AlertKind, Attempt, AuditRow, CaseView, Category, Class, Config, Death, EntryView, Facts, GroupView, Jitter,
    LedgerView, Message, Place, Rate, RedrivePhase, RedriveView,
};
use resil_core::{Instant, Span};
use resil_wire::command::{Command, Reply};
use resil_wire::dead_letters::*;
use resil_wire::reply::{Sink, Value};
use serde_json::{Value as Json, json};

/// As JSON: a map is an object.
fn as_json(value: &Value) -> Json {
    match value {
        Value::Integer(number) => json!(number),
        Value::Text(bytes) => json!(String::from_utf8(bytes.clone()).expect("UTF-8")),
        Value::Null => Json::Null,
        Value::Array(elements) => elements.iter().map(as_json).collect(),
        Value::Map(pairs) => {
            let object: serde_json::Map<String, Json> = pairs
                .iter()
                .map(|(key, value)| (as_json(key).as_str().expect("a name").to_owned(), as_json(value)))
                .collect();
            assert_eq!(object.len(), pairs.len(), "a name is there once");
            Json::Object(object)
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

/// What was written is `expected`, all of it, and the reply to `command` in either protocol.
#[track_caller]
fn shows(command: &Command<'_>, write: impl Fn(&mut dyn Sink), expected: &Json) {
    // One element more behind it: nothing may be left over of what was announced.
    let both = Value::written(|sink| {
        sink.array(2);
        write(sink);
        sink.integer(42);
    });
    let Value::Array(both) = both else { panic!("an array was written") };
    assert_eq!(both[1], Value::Integer(42), "{command:?} announces another number of fields");
    assert_eq!(&as_json(&both[0]), expected);
    for value in [both[0].clone(), flattened(both[0].clone())] {
        match command.read(value) {
            Ok(Reply::Ledger(LedgerReply::Map(map)) | Reply::Map(map)) => assert_eq!(map, both[0]),
            other => panic!("{other:?}"),
        }
    }
}

fn info(aspect: LedgerAspect) -> Command<'static> {
    Command::DlqInfo(LedgerInfoCall { key: b"k", aspect, part: Part::default() })
}

const GET: Command<'static> = Command::DlqGet(EntryCall { key: b"k", id: b"shop/42", only_state: false });

fn at(ms: i64) -> Instant {
    Instant::from_us(ms * 1_000 + 999)
}

fn redrive() -> RedriveView {
    RedriveView {
        phase: RedrivePhase::Verifying,
        started_at: at(30),
        rate: Rate { count: 100, period: Span::from_secs(60) },
        first: 10,
        oneshot: true,
        is_auto: false,
        given: 9,
        resolved: 5,
        died: 3,
        active: 1,
    }
}

fn redrive_shown() -> Json {
    json!({
        "phase": "verifying", "started_at": 30, "rate": 100, "period_ms": 60_000, "first": 10, "oneshot": 1, "auto": 0, "given": 9,
        "resolved": 5, "died": 3, "active": 1,
    })
}

#[test]
fn an_entry_is_listed_without_its_payload() {
    let facts = Facts {
        id: b"shop/42",
        payload: Some(b"order"),
        reference: None,
        kind: b"placed",
        source: b"shop",
        aggregate: b"ann",
        schema: Some(3),
        headers: &[b'h'; 70_000],
    };
    let message = Message::new(&facts);
    let view = EntryView {
        message: &message,
        place: Place::Dead,
        attempt: 6,
        lapses: 1,
        deaths: 2,
        reason: Some(Death::Retries),
        class: Class::External,
        group: b"placed/timeout",
        first_error: b"refused",
        last_error: b"timeout",
        error_is_cut: true,
        first_at: at(10),
        last_at: at(20),
        died_at: Some(at(20)),
        due_at: None,
        held: true,
        attempts: vec![Attempt { at: at(10), class: Class::Transient, delay: Span::from_us(1_500) }],
        cases: &[4, 7],
    };
    let mut expected = json!({
        "id": "shop/42", "state": "dead", "attempt": 6, "lapses": 1, "deaths": 2, "reason": "retries", "type": "placed", "source": "shop",
        "aggregate": "ann", "schema": 3, "headers": "h".repeat(65_536), "payload": "order", "ref": null, "class": "external",
        "group": "placed/timeout", "first_error": "refused", "last_error": "timeout", "first_at": 10, "last_at": 20, "died_at": 20,
        "due_at": null, "held": 1, "attempts": [[10, "transient", 2]], "cases": [4, 7], "cut": ["headers", "error"],
    });
    shows(&GET, |sink| write_entry(&view, sink), &expected);
    expected.as_object_mut().expect("a map").remove("payload");
    shows(&GET, |sink| write_entry_row(&view, sink), &expected);
}

#[test]
fn what_an_entry_does_not_have_is_nil() {
    let message = Message::new(&Facts { id: b"shop/42", reference: Some(b"s3:42"), ..Facts::default() });
    let view = EntryView {
        message: &message,
        place: Place::Parked,
        attempt: 0,
        lapses: 0,
        deaths: 0,
        reason: None,
        class: Class::Transient,
        group: b"",
        first_error: b"",
        last_error: b"",
        error_is_cut: false,
        first_at: at(10),
        last_at: at(10),
        died_at: None,
        due_at: Some(at(15)),
        held: false,
        attempts: vec![],
        cases: &[],
    };
    let expected = json!({
        "id": "shop/42", "state": "parked", "attempt": 0, "lapses": 0, "deaths": 0, "reason": null, "type": null, "source": null,
        "aggregate": null, "schema": null, "headers": null, "payload": null, "ref": "s3:42", "class": "transient", "group": null,
        "first_error": null, "last_error": null, "first_at": 10, "last_at": 10, "died_at": null, "due_at": 15, "held": 0, "attempts": [],
        "cases": [], "cut": [],
    });
    shows(&GET, |sink| write_entry(&view, sink), &expected);
}

#[test]
fn a_ledger_is_shown_by_its_counts_and_its_configuration() {
    let view = LedgerView {
        counts: [1, 2, 3, 4, 5, 6],
        held: 7,
        entries: 21,
        bytes: 9_000,
        groups: 8,
        cases_open: 9,
        alerts_unseen: 10,
        paused_until: None,
    };
    let expected = json!({
        "waiting": 1, "taken": 2, "parked": 3, "dead": 4, "resolved": 5, "archived": 6, "held": 7, "entries": 21, "bytes": 9000, "groups": 8,
        "cases_open": 9, "alerts_unseen": 10, "paused_until": -1, "exists": 1,
    });
    shows(&info(LedgerAspect::Counts), |sink| write_ledger(&view, true, sink), &expected);
    let mut expected = json!({
        "transient_retries": 5, "transient_base": "500ms", "transient_cap": "30s", "business_retries": 3, "business_base": "500ms",
        "business_cap": "30s", "external_retries": 5, "external_base": "500ms", "external_cap": "5m", "jitter": "full", "crashes": 3,
        "ratemax": "1000 1m", "aftermax": "1h", "paused_until": -1,
    });
    let config = info(LedgerAspect::Config);
    shows(&config, |sink| write_config(&Config::default(), sink), &expected);
    expected["jitter"] = json!("plus 20");
    expected["paused_until"] = json!(77);
    let changed = Config { jitter: Jitter::Plus(20), paused_until: Some(at(77)), ..Config::default() };
    shows(&config, |sink| write_config(&changed, sink), &expected);
}

#[test]
fn groups_cases_alerts_and_audit_are_maps_in_a_list() {
    let group = GroupView {
        name: b"placed/timeout",
        kind: b"placed",
        dead: 3,
        entries: 5,
        deaths: 9,
        first_at: at(1),
        last_at: at(2),
        sample: b"timeout after 5 s",
        cases: &[4],
    };
    let group_shown = json!({
        "group": "placed/timeout", "type": "placed", "dead": 3, "entries": 5, "deaths": 9, "first_at": 1, "last_at": 2,
        "sample": "timeout after 5 s", "cases": [4],
    });
    shows(&GET, |sink| write_group(&group, sink), &group_shown);
    let alert =
        Alert { id: 5, kind: AlertKind::Spike, subject: (*b"placed").into(), count: 11, at: at(3), is_seen: false };
    let alert_shown = json!({"alert": 5, "kind": "spike", "severity": "critical", "subject": "placed", "count": 11, "at": 3, "seen": 0});
    shows(&GET, |sink| write_alert(&alert, sink), &alert_shown);
    let row = AuditRow {
        id: 6,
        at: at(4),
        user: (*b"default").into(),
        actor: (*b"ann").into(),
        correlation: (*b"").into(),
        action: (*b"close 4").into(),
    };
    let row_shown =
        json!({"id": 6, "at": 4, "user": "default", "actor": "ann", "correlation": null, "action": "close 4"});
    shows(&GET, |sink| write_audit(&row, sink), &row_shown);
    let written = Value::written(|sink| write_list(9, &[&group, &group], |group, sink| write_group(group, sink), sink));
    assert_eq!(as_json(&written), json!([9, [group_shown, group_shown]]));
    for value in [written.clone(), flattened(written.clone())] {
        let reply = info(LedgerAspect::Groups).read(value).expect("a list");
        assert_eq!(Value::written(|sink| reply.write(sink)), written);
        assert!(matches!(reply, Reply::Ledger(LedgerReply::List { cursor: 9, rows }) if rows.len() == 2));
    }
}

#[test]
fn a_case_is_shown_with_its_redrive() {
    let mut view = CaseView {
        number: 4,
        category: Category::Business,
        cause: b"a price was missing",
        fix: b"it was added",
        decision: b"charge them",
        groups: vec![b"placed/price", b"paid/price"],
        user: b"default",
        actor: b"ann",
        opened_at: at(5),
        closed_at: None,
        is_discarded: false,
        auto_until: Some(at(6)),
        redrive: Some(redrive()),
    };
    let mut expected = json!({
        "case": 4, "category": "business", "cause": "a price was missing", "fix": "it was added", "decision": "charge them",
        "groups": ["placed/price", "paid/price"], "user": "default", "actor": "ann", "opened_at": 5, "closed_at": null, "discarded": 0,
        "auto_until": 6, "redrive": redrive_shown(),
    });
    let case = info(LedgerAspect::Case(4));
    shows(&case, |sink| write_case(&view, sink), &expected);
    view.redrive = None;
    expected["redrive"] = Json::Null;
    shows(&case, |sink| write_case(&view, sink), &expected);
    assert_eq!(case.read(Value::Null), Ok(Reply::Ledger(LedgerReply::Nothing)));
    let stop = Command::DlqStop(StopCall { key: b"k", case: 4, by: By::default() });
    shows(&stop, |sink| write_redrive(&redrive(), sink), &redrive_shown());
}
