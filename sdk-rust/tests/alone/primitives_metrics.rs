//! What is counted of locks, shared bulkheads, idempotent work and caches, and that nothing else is.

use std::collections::BTreeSet;
use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use metrics::with_local_recorder;
use resil::cache::CacheSettings;
use resil::clock::Clock;
use resil::idempotency::IdempotencySettings;
use resil::idempotency::OnLapse;
use resil::lock::LockSettings;
use resil::shared_bulkhead::SharedBulkheadSettings;
use resil::telemetry::METRICS;
use resil::{Client, Code, ConnectSettings};

use crate::counted::Seen;
use crate::drive::tasks::settle;
use crate::drive::{drive, poll_now};

const SECOND: Duration = Duration::from_secs(1);

async fn client(clock: &Clock) -> Client {
    ConnectSettings::new("memory://").clock(clock.clone()).connect().await.expect("memory is there")
}

#[tokio::test]
async fn locks_and_permits_are_counted_from_question_to_end() {
    let clock = Clock::driven();
    let client = client(&clock).await;
    let seen = Seen::with_histograms();
    let (stock, ids, reports) = with_local_recorder(&seen, || {
        let stock =
            client.lock("stock:42", LockSettings::new().lease(10 * SECOND).unbound()).unwrap().labelled("stock");
        (
            stock,
            client.lock("order:17", LockSettings::new()).unwrap(),
            client.shared_bulkhead("reports", SharedBulkheadSettings::new(1)).unwrap().labelled("reports"),
        )
    });

    let held = stock.try_acquire().await.expect("free");
    stock.try_acquire().await.map(drop).expect_err("taken");
    let mut waiting = pin!(stock.acquire_within(5 * SECOND));
    assert!(poll_now(waiting.as_mut()).is_pending());
    clock.advance(2 * SECOND);
    held.release().await.expect("held");
    let second = waiting.await.expect("its turn");
    seen.is(&[
        ("resil_granted_total{name=stock,primitive=lock}", 2.0),
        ("resil_denied_total{name=stock,primitive=lock}", 1.0),
        ("resil_wait_seconds{name=stock,primitive=lock}", 2.0),
        ("resil_held_seconds{name=stock,primitive=lock}", 2.0),
    ]);

    // Lost, and let go afterwards: counted once.
    clock.advance(4 * SECOND);
    settle().await;
    stock.break_lock("", "").await.expect("broken");
    assert!(second.release().await.is_err());
    drop(ids.try_acquire().await.expect("another lock"));
    let inside = reports.try_enter().await.expect("room");
    assert_eq!(reports.try_enter().await.map(drop).expect_err("full").code(), Code::BulkheadFull);
    clock.advance(SECOND);
    inside.leave().await.expect("inside");
    seen.is(&[
        ("resil_granted_total{name=default,primitive=lock}", 1.0),
        ("resil_granted_total{name=stock,primitive=lock}", 2.0),
        ("resil_held_seconds{name=default,primitive=lock}", 0.0),
        ("resil_held_seconds{name=stock,primitive=lock}", 6.0),
        ("resil_lost_total{name=stock,primitive=lock}", 1.0),
        ("resil_denied_total{name=stock,primitive=lock}", 1.0),
        ("resil_wait_seconds{name=default,primitive=lock}", 0.0),
        ("resil_wait_seconds{name=stock,primitive=lock}", 2.0),
        ("resil_granted_total{name=reports,primitive=shared_bulkhead}", 1.0),
        ("resil_held_seconds{name=reports,primitive=shared_bulkhead}", 1.0),
        ("resil_denied_total{name=reports,primitive=shared_bulkhead}", 1.0),
        ("resil_wait_seconds{name=reports,primitive=shared_bulkhead}", 0.0),
    ]);
}

#[tokio::test]
async fn idempotent_calls_are_counted_once_each_by_how_they_ended() {
    let clock = Clock::driven();
    let client = client(&clock).await;
    let seen = Seen::with_histograms();
    let pay = with_local_recorder(&seen, || {
        client.idempotent("pay", IdempotencySettings::new().lease(10 * SECOND).wait(Duration::ZERO))
    });
    let pay = pay.expect("valid");
    let paid = async |_| {
        clock.sleep(2 * SECOND).await;
        Ok::<_, String>("paid")
    };

    drive(&clock, pay.run("1", b"seven", paid)).expect("it runs");
    pay.run("1", b"seven", paid).await.expect("it is replayed");
    pay.run("1", b"eight", paid).await.expect_err("another request");
    pay.run("2", b"", async |_| Err::<&str, _>("declined".to_owned())).await.expect_err("its own error");
    {
        let mut running = pin!(pay.run("3", b"", async |_| pending::<Result<&str, String>>().await));
        assert!(poll_now(running.as_mut()).is_pending());
        let settings = IdempotencySettings::new().wait(Duration::ZERO);
        let other = with_local_recorder(&seen, || client.idempotent("pay", settings)).expect("valid");
        other.run("3", b"", paid).await.expect_err("another runs");
    }
    assert!(pay.once("event", SECOND, None).await.expect("asked"));
    assert!(!pay.once("event", SECOND, None).await.expect("asked"));
    seen.is(&[
        ("resil_idempotent_calls_total{name=pay,outcome=busy}", 1.0),
        ("resil_idempotent_calls_total{name=pay,outcome=cancelled}", 1.0),
        ("resil_idempotent_calls_total{name=pay,outcome=failed}", 1.0),
        ("resil_idempotent_calls_total{name=pay,outcome=mismatch}", 1.0),
        ("resil_idempotent_calls_total{name=pay,outcome=ran}", 1.0),
        ("resil_idempotent_calls_total{name=pay,outcome=replayed}", 1.0),
        ("resil_idempotent_run_seconds{name=pay}", 2.0),
        ("resil_once_total{name=pay,answer=again}", 1.0),
        ("resil_once_total{name=pay,answer=first}", 1.0),
    ]);
}

#[tokio::test]
async fn silent_work_and_lost_leases_are_distinguished() {
    let clock = Clock::driven();
    let client = client(&clock).await;
    let seen = Seen::default();
    let build = || {
        client.idempotent("pay", IdempotencySettings::new().lease(SECOND).wait(Duration::ZERO).on_lapse(OnLapse::Hold))
    };
    let pay = with_local_recorder(&seen, build).expect("valid");
    {
        let mut running = pin!(pay.run("1", b"", async |_| pending::<Result<&str, String>>().await));
        assert!(poll_now(running.as_mut()).is_pending());
        // Nobody renewed it in time: the process slept.
        clock.advance(2 * SECOND);
        running.await.expect_err("lost");
    }
    pay.run("1", b"", async |_| Ok::<_, String>("paid")).await.expect_err("held for somebody to decide");
    seen.is(&[
        ("resil_idempotent_calls_total{name=pay,outcome=held}", 1.0),
        ("resil_idempotent_calls_total{name=pay,outcome=lost}", 1.0),
    ]);
}

#[tokio::test]
async fn gets_count_by_source_and_loads_by_outcome() {
    let clock = Clock::driven();
    let client = client(&clock).await;
    let seen = Seen::with_histograms();
    let build =
        || client.cached("user", CacheSettings::new().ttl(60 * SECOND).stale(60 * SECOND).load_timeout(3 * SECOND));
    let users = with_local_recorder(&seen, build).expect("valid");
    let tiered = with_local_recorder(&seen, || client.cached("user", CacheSettings::new().local_ttl(10 * SECOND)))
        .expect("valid");
    let source = clock.clone();
    let slow = move |_: String| async move {
        source.sleep(SECOND).await;
        Ok::<_, String>(Some(Bytes::from("Ada")))
    };

    let loading = tokio::spawn({
        let (users, slow) = (users.clone(), slow.clone());
        async move { users.get("42", slow).await }
    });
    settle().await;
    clock.advance(SECOND);
    loading.await.expect("not cancelled").expect("a miss");
    users.get("42", slow.clone()).await.expect("a hit");
    tiered.get("42", slow.clone()).await.expect("a hit, kept here");
    tiered.get("42", slow.clone()).await.expect("local");
    users.get("43", async |_| Ok::<_, String>(None)).await.expect("there is none");
    users.get("44", async |_| Err::<Option<Bytes>, _>("down".to_owned())).await.expect_err("the loader's error");
    let timing_out = tokio::spawn({
        let users = users.clone();
        async move { users.get("45", async |_| pending::<Result<Option<Bytes>, String>>().await).await }
    });
    settle().await;
    for _ in 0..6 {
        clock.advance(SECOND / 2);
        settle().await;
    }
    timing_out.await.expect("not cancelled").expect_err("it took too long");
    clock.advance(60 * SECOND);
    assert!(users.get("42", async |_| Ok::<_, String>(Some("Ada".into()))).await.expect("there").is_stale());
    settle().await;
    seen.is(&[
        ("resil_cache_gets_total{name=user,outcome=error}", 2.0),
        ("resil_cache_gets_total{name=user,outcome=hit}", 2.0),
        ("resil_cache_gets_total{name=user,outcome=local}", 1.0),
        ("resil_cache_gets_total{name=user,outcome=miss}", 2.0),
        ("resil_cache_gets_total{name=user,outcome=stale}", 1.0),
        ("resil_cache_load_seconds{name=user}", 4.0),
        ("resil_cache_loads_total{name=user,outcome=error}", 1.0),
        ("resil_cache_loads_total{name=user,outcome=found}", 2.0),
        ("resil_cache_loads_total{name=user,outcome=not_found}", 1.0),
        ("resil_cache_loads_total{name=user,outcome=timeout}", 1.0),
    ]);
}

/// What the page says, by the first column of its table.
fn documented() -> BTreeSet<String> {
    let page = include_str!("../../../docs/telemetry.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `resil_"));
    rows.map(|row| format!("| `resil_{row}")).collect()
}

#[test]
fn the_metrics_are_exactly_the_documented_ones() {
    let row = |metric: &resil::telemetry::Metric| {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        format!("| `{}` | {} | {} | {} |", metric.name, metric.kind.text(), labels.join(", "), metric.help)
    };
    let made: BTreeSet<String> = METRICS.iter().map(row).collect();
    assert!(made.len() > 25, "the list was found");
    assert_eq!(made, documented(), "docs/telemetry.md has other rows than sdk-rust/src/telemetry/mod.rs");
}
