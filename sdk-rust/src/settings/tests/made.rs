//! What comes of settings, and how it is shown.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use super::super::*;
use super::{NODE, PYTHON};
use crate::breaker::{Forced, Snapshot, State, Transition};
use crate::client::Client;
use crate::dispatcher::Dispatcher;
use crate::health::{Health, Status};
use crate::limiter::{DecidedBy, Verdict};
use crate::lock::{Holder, Info, Mode};
use crate::policy::{self, Policy};

#[test]
fn what_is_shown_is_in_the_languages_own_terms() {
    let verdict = Verdict {
        granted: 0,
        limit: 10,
        period: Duration::from_secs(1),
        capacity: 10,
        remaining: 0,
        retry_after: Some(Duration::from_millis(1_500)),
        reset_after: Duration::from_micros(2_500),
        decided_by: DecidedBy::DenyCache,
        tiers: Vec::new(),
        binding: 0,
    };
    let python = json!({
        "granted": 0, "limit": 10, "period": 1.0, "capacity": 10, "remaining": 0, "retry_after": 1.5, "reset_after": 0.0025,
        "decided_by": "deny-cache", "binding": 0,
    });
    let node = json!({
        "granted": 0, "limit": 10, "period": 1_000, "capacity": 10, "remaining": 0, "retryAfter": 1_500, "resetAfter": 2.5,
        "decidedBy": "deny-cache", "binding": 0,
    });
    assert_eq!(PYTHON.show(&verdict).unwrap(), python);
    assert_eq!(NODE.show(&verdict).unwrap(), node);
    assert_eq!(serde_json::to_value(verdict).unwrap()["retryAfter"], "1500ms", "in plain JSON as in settings");

    let policies = [("lock:my_stock".to_owned(), Status::Healthy)].into();
    let health = Health { overall: Status::Degraded, policies, reason: None, since: None };
    assert_eq!(
        NODE.show(&health).unwrap(),
        json!({ "overall": "degraded", "policies": { "lock:my_stock": "healthy" } })
    );

    let holder = Holder {
        owner: "me".to_owned(),
        fence: 7,
        held: Duration::from_secs(1),
        remaining: Duration::from_secs(2),
        mode: Mode::Exclusive,
        meta: None,
        is_bound: true,
    };
    let (holders, waiters) = (vec![holder], Vec::new());
    let info = Info { exists: true, holders, holders_total: 1, waiters, waiters_total: 0, last_fence: 7 };
    let shown = PYTHON.show(&info).unwrap();
    assert_eq!((&shown["holders"][0]["remaining"], &shown["holders"][0]["mode"]), (&json!(2.0), &json!("exclusive")));
    assert_eq!(shown["last_fence"], 7);
}

#[test]
fn a_breaker_is_shown_with_its_moments() {
    let at = UNIX_EPOCH + Duration::from_millis(1_700_000_000_250);
    let forced = Forced { by: "ada".to_owned(), reason: "drill".to_owned(), since: at, until: None, ends_in: None };
    let snapshot = Snapshot {
        exists: true,
        state: State::HalfOpen,
        admits: true,
        retry_after: None,
        generation: 3,
        calls: 0,
        failures: 0,
        slow: 0,
        failure_rate_percent: 0,
        slow_rate_percent: 0,
        failures_in_a_row: 0,
        trips: 1,
        probes_out: 0,
        successes: 0,
        opened_at: Some(at),
        forced: Some(forced),
        version: 1,
        config: vec![("min-calls".to_owned(), "10".to_owned())],
    };
    let (python, node) = (PYTHON.show(&snapshot).unwrap(), NODE.show(&snapshot).unwrap());
    assert_eq!(
        (&python["opened_at"], &python["forced"]["since"]),
        (&json!(1_700_000_000.25), &json!(1_700_000_000.25))
    );
    assert_eq!((&node["openedAt"], &node["state"]), (&json!(1_700_000_000_250_u64), &json!(State::HalfOpen.text())));
    assert_eq!(node["config"], json!({ "min-calls": "10" }));
    for state in State::ALL {
        let transition = Transition { previous: state, new: state, generation: 1 };
        assert_eq!(PYTHON.show(&transition).unwrap()["new"], json!(state.text()), "as everywhere else");
    }
}

async fn memory() -> Client {
    ConnectSettings::new("memory://").connect().await.unwrap()
}

#[tokio::test]
async fn a_made_handle_keeps_its_settings_and_checks_names() {
    let client = memory().await;
    let lock: LockSettings = NODE.read(json!({ "lease": 60_000, "meta": "nightly", "wait": 0 })).unwrap();
    let lock = client.lock("stock", lock).unwrap();
    let guard = lock.acquire().await.unwrap();
    assert!(guard.remaining() > Duration::from_secs(50));
    assert_eq!(lock.info().await.unwrap().holders[0].meta.as_deref(), Some("nightly"));
    assert_eq!(lock.acquire().await.unwrap_err().code(), crate::Code::LockTimeout, "it waits for nobody");

    let twins = LockSettings::new().replicas(1);
    let field = |error: Error| match error {
        Error::InvalidPolicy { field, .. } => field,
        other => panic!("{other:?}"),
    };
    assert_eq!(field(client.lock("stock", twins).unwrap_err()), "replicas");
    assert_eq!(field(client.lock("", LockSettings::new()).unwrap_err()), "name");
    assert_eq!(field(client.cached("a{b", CacheSettings::new()).unwrap_err()), "name");
    assert_eq!(field(client.idempotent("", IdempotencySettings::new()).unwrap_err()), "name");

    let bulkhead: SharedBulkheadSettings = PYTHON.read(json!({ "max_concurrent_calls": 1, "max_wait": 0.01 })).unwrap();
    let bulkhead = client.shared_bulkhead("reports", bulkhead).unwrap();
    let inside = bulkhead.enter().await.unwrap();
    assert_eq!(bulkhead.enter().await.unwrap_err().code(), crate::Code::BulkheadFull);
    drop(inside);

    let once: IdempotencySettings = PYTHON.read(json!({ "keep": 3600, "abort_on_cancel": true })).unwrap();
    let once = client.idempotent("payments", once).unwrap();
    let paid = once.run("1", b"", async |_run| Ok::<_, Error>("receipt")).await.unwrap();
    assert_eq!(paid.value.as_deref(), Some(&b"receipt"[..]));

    let cache: CacheSettings = PYTHON.read(json!({ "ttl": 0, "local_size": 5 })).unwrap();
    let cache = client.cached("user", cache).unwrap();
    let ada = cache.get("1", async |_key| Ok::<_, Error>(Some("Ada".into()))).await.unwrap();
    assert_eq!(ada.into_value().as_deref(), Some(&b"Ada"[..]));

    let one_by_one: DispatcherSettings = NODE.read(json!({ "workers": 1, "onError": "stop" })).unwrap();
    let results = Dispatcher::new(one_by_one).unwrap().run([0, 1], |_| async { Err::<(), _>("broken") }).await;
    assert!(!results[1].as_ref().unwrap_err().was_begun());
}

#[tokio::test]
async fn a_policy_without_a_client_shares_nothing_fleet_wide() {
    let read = |said: Value| NODE.read::<PolicySettings>(said).unwrap();
    let policy = Policy::local(&read(json!({ "name": "p", "retry": {}, "bulkhead": {} }))).unwrap();
    assert_eq!(policy.call(policy::retry_all, || async { Ok::<_, Error>(7) }).await, Ok(7));
    for (part, said) in [
        ("breaker", json!({})),
        ("rateLimit", json!({ "limit": 1, "period": "1s" })),
        ("sharedBulkhead", json!({ "maxConcurrentCalls": 1 })),
    ] {
        let error = Policy::local(&read(json!({ "name": "p", part: said }))).unwrap_err();
        assert!(error.to_string().starts_with(part), "{error}");
        let error = PYTHON.spell_error(error);
        assert!(error.to_string().starts_with(&Spelling::Snake.spell(part)), "{error}");
    }
}

#[tokio::test]
async fn a_policy_knows_whether_it_interrupts() {
    let client = memory().await;
    let interrupts = |part: &str, said: Value| {
        let settings = NODE.read::<PolicySettings>(json!({ "name": "p", part: said })).unwrap();
        Policy::from_settings(&client, &settings).unwrap().interrupts()
    };
    assert!(interrupts("timeout", json!({ "attempt": 5 })));
    assert!(interrupts("timeout", json!({ "total": 5 })));
    assert!(interrupts("hedge", json!({})));
    assert!(interrupts("sharedBulkhead", json!({ "maxConcurrentCalls": 1 })));
    assert!(!interrupts("retry", json!({})));
    assert!(!interrupts("breaker", json!({})));
    assert!(!interrupts("rateLimit", json!({ "limit": 1, "period": "1s" })));
    assert!(!interrupts("bulkhead", json!({})));
    assert!(!interrupts("shed", json!(3)));
}
