//! What is asked, word by word, and what is made of the replies.

use std::time::Duration;

use resil_core::lock::Reason;
use resil_wire::command::Reply;
use resil_wire::holding::{Released, Renewed};
use resil_wire::lock::{Acquired, Taken};

use super::{client_of, finish, ms, pass, settle, text};
use crate::backend::Backend;
use crate::backend::scripted::Scripted;
use crate::client::Client;
use crate::clock::Clock;
use crate::error::{Code, Error};
use crate::health::Away;
use crate::lock::LockSettings;

const AWAY: Error = Error::BackendUnavailable("cut");

fn scripted(replies: impl IntoIterator<Item = Result<Reply, Error>>) -> (Client, Scripted, Clock) {
    let (clock, script) = (Clock::driven(), Scripted::new());
    script.lines.lock().replies = replies.into_iter().collect();
    (client_of(Backend::Scripted(script.clone()), &clock), script, clock)
}

fn granted(lease_ms: i64, waited_ms: i64) -> Result<Reply, Error> {
    Ok(Reply::Acquired(Acquired::Granted { fence: 77, lease_ms, waited_ms }))
}

fn renewed(lease_ms: i64) -> Result<Reply, Error> {
    Ok(Reply::Renewed(Renewed::Granted { fence: 77, lease_ms }))
}

fn taken(remaining_ms: i64) -> Taken {
    Taken { holder: Some(b"other".to_vec()), remaining_ms, waiters: 1 }
}

fn released() -> Result<Reply, Error> {
    Ok(Reply::Released(Released::Released { held_ms: 5 }))
}

fn asked(script: &Scripted) -> Vec<Vec<String>> {
    script.lines.lock().asked.iter().map(|words| words.iter().map(|word| text(word)).collect()).collect()
}

#[tokio::test]
async fn a_grant_is_trusted_for_its_lease_less_margin() {
    let (client, _, clock) = scripted([granted(10_000, 0)]);
    let sent = clock.now();
    let guard = client.lock("orders", LockSettings::new().unbound()).unwrap().try_acquire().await.expect("granted");
    assert_eq!(guard.deadline(), sent + ms(10_000 - 100 - 2));
    assert_eq!(guard.fence(), Some(77));
}

/// The server may have seen its connection close the moment after it was granted.
#[tokio::test]
async fn a_bound_grant_is_trusted_for_the_shorter_limit() {
    for (lease_ms, grace_ms, trusted_ms) in
        [(10_000, 3_000, 3_000 - 30 - 2), (10_000, 8_000, 8_000 - 80 - 2), (2_000, 3_000, 2_000 - 20 - 2)]
    {
        let (client, script, clock) = scripted([granted(lease_ms, 0), renewed(lease_ms)]);
        let sent = clock.now();
        let lock = client.lock("orders", LockSettings::new().lease(ms(lease_ms as u64)).grace(ms(grace_ms))).unwrap();
        let guard = lock.try_acquire().await.expect("granted");
        assert_eq!(guard.deadline(), sent + ms(trusted_ms));
        let acquire = asked(&script)[0].clone();
        assert!(acquire.ends_with(&["BOUND".into(), "GRACE".into(), format!("{}s", grace_ms / 1_000)]), "{acquire:?}");
        guard.extend(ms(60_000)).await.expect("extended");
        let after = trusted_ms.max(grace_ms - grace_ms / 100 - 2).min(lease_ms as u64 - lease_ms as u64 / 100 - 2);
        assert_eq!(
            guard.deadline(),
            clock.now() + ms(after),
            "as long as the server says, and no longer than the grace"
        );
    }
}

#[tokio::test]
async fn a_wait_longer_than_elapsed_is_not_believed() {
    // A server whose clock was set forward by an hour while somebody waited.
    let (client, _, clock) = scripted([granted(10_000, 3_600_000)]);
    let guard = client.lock("orders", LockSettings::new().unbound()).unwrap().acquire().await.expect("granted");
    assert_eq!(guard.deadline(), clock.now() + ms(9_898));
}

#[tokio::test]
async fn a_bound_lock_is_renewed_within_its_grace_and_rebound() {
    let (client, script, clock) = scripted([granted(9_000, 0), renewed(9_000)]);
    let guard =
        client.lock("orders", LockSettings::new().lease(ms(9_000))).unwrap().try_acquire().await.expect("granted");
    settle().await;
    clock.advance(ms(999));
    settle().await;
    assert_eq!(asked(&script).len(), 1, "not before a third");
    clock.advance(ms(1));
    settle().await;
    let asked = asked(&script);
    assert_eq!(asked[1][..3], ["RES.LOCK", "RENEW", "resil:lock:{orders}"]);
    assert_eq!(asked[1][3], asked[0][3], "the same owner");
    assert!(
        asked[1].ends_with(&["FENCE".into(), "77".into(), "BOUND".into(), "GRACE".into(), "3s".into()]),
        "{:?}",
        asked[1]
    );
    assert_eq!(guard.deadline(), clock.now() + ms(3_000 - 30 - 2));
}

#[tokio::test]
async fn an_unbound_lock_is_renewed_within_its_lease() {
    let (client, script, clock) = scripted([granted(9_000, 0), renewed(9_000)]);
    let guard = client
        .lock("orders", LockSettings::new().lease(ms(9_000)).unbound())
        .unwrap()
        .try_acquire()
        .await
        .expect("granted");
    settle().await;
    clock.advance(ms(2_999));
    settle().await;
    assert_eq!(asked(&script).len(), 1, "not before a third");
    clock.advance(ms(1));
    settle().await;
    assert!(asked(&script)[1].ends_with(&["FENCE".into(), "77".into()]), "{:?}", asked(&script)[1]);
    assert_eq!(guard.deadline(), clock.now() + ms(9_000 - 90 - 2));
}

#[tokio::test]
async fn a_loss_the_server_reports_counts_at_once() {
    let lost = Ok(Reply::Renewed(Renewed::Lost(Reason::Broken)));
    let (client, script, clock) = scripted([granted(9_000, 0), lost]);
    let guard =
        client.lock("orders", LockSettings::new().lease(ms(9_000))).unwrap().try_acquire().await.expect("granted");
    pass(&clock, ms(3_000)).await;
    assert!(guard.lost().is_cancelled() && !guard.is_held());
    assert_eq!(guard.held().why_lost(), Some("broken"));
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert!(matches!(guard.release().await, Err(Error::LockLost { reason: "broken", .. })));
    settle().await;
    assert_eq!(asked(&script).len(), 2, "there is nothing to release");
}

#[tokio::test]
async fn failed_renewals_are_retried_until_the_deadline_loses_it() {
    let (client, script, clock) = scripted([granted(9_000, 0)]);
    let guard = client
        .lock("orders", LockSettings::new().lease(ms(9_000)).unbound())
        .unwrap()
        .try_acquire()
        .await
        .expect("granted");
    let deadline = guard.deadline();
    pass(&clock, ms(4_000)).await;
    let tries = asked(&script).len() - 1;
    assert!((3..=20).contains(&tries), "{tries} tries in the second after the first");
    pass(&clock, deadline - clock.now() - ms(2)).await;
    assert!(guard.is_held() && !guard.lost().is_cancelled(), "until the deadline it is held");
    clock.advance(ms(2));
    assert!(!guard.is_held(), "by the clock alone, before any task ran");
    settle().await;
    assert!(guard.lost().is_cancelled());
}

#[tokio::test]
async fn without_a_watchdog_nothing_renews_and_tokens_still_fire() {
    let (client, script, clock) = scripted([granted(9_000, 0)]);
    let guard = client
        .lock("orders", LockSettings::new().lease(ms(9_000)).without_watchdog())
        .unwrap()
        .try_acquire()
        .await
        .expect("granted");
    pass(&clock, ms(9_000)).await;
    assert!(guard.lost().is_cancelled());
    assert_eq!(asked(&script).len(), 1);
}

#[tokio::test]
async fn a_lost_reply_is_requested_by_the_same_owner() {
    let (client, script, clock) = scripted([Err(AWAY), Err(AWAY), granted(10_000, 0)]);
    let lock = client.lock("orders", LockSettings::new()).unwrap();
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    let guard = finish(&clock, acquiring, ms(500)).await.expect("granted in the end");
    let asked = asked(&script);
    assert_eq!(asked.len(), 3);
    assert!(asked.iter().all(|words| words[3] == asked[0][3]), "{asked:?}");
    assert!(guard.is_held());
}

#[tokio::test]
async fn what_got_no_reply_is_released_by_its_owner() {
    let (client, script, _) = scripted([Err(AWAY), released()]);
    assert_eq!(client.lock("orders", LockSettings::new()).unwrap().try_acquire().await.map(drop), Err(AWAY));
    settle().await;
    let asked = asked(&script);
    assert_eq!(asked[1], ["RES.LOCK", "RELEASE", "resil:lock:{orders}", &asked[0][3]]);
}

#[tokio::test]
async fn two_acquisitions_never_have_the_same_owner() {
    let (client, script, _) = scripted([granted(10_000, 0), released(), granted(10_000, 0)]);
    let lock = client.lock("orders", LockSettings::new()).unwrap();
    lock.try_acquire().await.expect("granted").release().await.expect("released");
    let _guard = lock.try_acquire().await.expect("granted");
    let asked = asked(&script);
    assert_ne!(asked[0][3], asked[2][3]);
    assert!(asked[0][3].starts_with("service:"), "it can be read who it is: {}", asked[0][3]);
}

#[tokio::test]
async fn a_refusal_says_when_to_come_again() {
    let (client, script, _) = scripted([Ok(Reply::Acquired(Acquired::Taken(taken(234))))]);
    let refused = client.lock("orders", LockSettings::new()).unwrap().try_acquire().await.map(drop).expect_err("taken");
    assert_eq!(refused.retry_after(), Some(ms(234)));
    assert_eq!(refused.code(), Code::LockTimeout);
    settle().await;
    assert_eq!(asked(&script).len(), 1, "a refusal leaves nothing to release");
}

#[tokio::test]
async fn a_caller_that_finds_it_taken_waits_out_its_time() {
    let timeout = Ok(Reply::Acquired(Acquired::Timeout(taken(10))));
    let (client, script, _) = scripted([Ok(Reply::Acquired(Acquired::Taken(taken(1)))), granted(10_000, 0), timeout]);
    let _guard = client.lock("orders", LockSettings::new().wait(ms(5_000))).unwrap().acquire().await.expect("granted");
    let asked = asked(&script);
    assert!(!asked[0].contains(&"WAIT".to_owned()), "{:?}", asked[0]);
    assert!(asked[1].windows(2).any(|pair| pair[0] == "WAIT" && pair[1].starts_with('5')), "{:?}", asked[1]);
}

/// How long was waited counts from the question that a verdict belongs to, and that may be any of them.
#[tokio::test]
async fn a_repeated_waits_verdict_counts_from_the_first_question() {
    let taken = Ok(Reply::Acquired(Acquired::Taken(taken(1))));
    let (client, script, clock) = scripted([taken, Err(AWAY), granted(10_000, 0)]);
    let sent = clock.now();
    let lock = client.lock("orders", LockSettings::new().unbound().wait(ms(5_000))).unwrap();
    let guard = finish(&clock, tokio::spawn(async move { lock.acquire().await }), ms(500)).await.expect("granted");
    assert_eq!(asked(&script).len(), 3);
    assert!(clock.now() > sent, "there was a pause");
    assert_eq!(guard.deadline(), sent + ms(10_000 - 100 - 2));
}

#[tokio::test]
async fn while_the_server_is_away_open_passes_without_fence() {
    let (client, script, clock) = scripted([Err(AWAY), released()]);
    script.set_reach(crate::backend::Reach::Away);
    let guard =
        client.lock("orders", LockSettings::new().when_away(Away::Open)).unwrap().acquire().await.expect("let through");
    assert_eq!(guard.fence(), None);
    assert!(guard.held().is_unprotected() && guard.is_held());
    pass(&clock, ms(60_000)).await;
    assert!(guard.is_held() && !guard.lost().is_cancelled(), "there is nothing that could be lost");
    guard.release().await.expect("nothing to release");
}

#[tokio::test]
async fn while_away_closed_is_an_error_and_local_refused() {
    let (client, script, clock) = scripted([]);
    script.set_reach(crate::backend::Reach::Away);
    let lock = client.lock("orders", LockSettings::new().wait(ms(300))).unwrap();
    let acquiring = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.map(drop) }
    });
    let reported = finish(&clock, acquiring, ms(301)).await;
    assert!(matches!(reported, Err(Error::BackendUnavailable(_))));
    let local = client.lock("orders", LockSettings::new().when_away(Away::Local)).map(drop).expect_err("refused");
    assert!(matches!(local, Error::InvalidPolicy { ref field, .. } if field == "whenAway"), "{local}");
}

#[tokio::test]
async fn too_few_replicas_give_the_lock_back() {
    let (client, script, _) = scripted([granted(10_000, 0), renewed(10_000), Ok(Reply::Number(1)), released()]);
    let refused = client
        .lock("orders", LockSettings::new().replicas(2))
        .unwrap()
        .try_acquire()
        .await
        .map(drop)
        .expect_err("one is not two");
    assert_eq!(refused.code(), Code::BackendUnavailable);
    settle().await;
    assert_eq!(asked(&script)[3][..3], ["RES.LOCK", "RELEASE", "resil:lock:{orders}"]);
}

#[tokio::test]
async fn enough_replicas_make_it_a_grant() {
    let (client, ..) = scripted([granted(10_000, 0), renewed(10_000), Ok(Reply::Number(2))]);
    let guard = client.lock("orders", LockSettings::new().replicas(2)).unwrap().try_acquire().await.expect("granted");
    assert!(guard.is_held());
}

#[tokio::test]
async fn a_shorter_lease_counts_from_its_request() {
    let (client, _, clock) = scripted([granted(60_000, 0), Err(AWAY)]);
    let guard =
        client.lock("orders", LockSettings::new().lease(ms(60_000))).unwrap().try_acquire().await.expect("granted");
    assert_eq!(guard.extend(ms(1_000)).await, Err(AWAY), "whether it arrived is not known");
    assert_eq!(guard.deadline(), clock.now() + ms(1_000 - 10 - 2));
}

#[tokio::test]
async fn an_extension_is_the_lease_from_then_on() {
    let (client, script, clock) = scripted([granted(9_000, 0), renewed(30_000), renewed(30_000)]);
    let guard = client
        .lock("orders", LockSettings::new().lease(ms(9_000)).unbound())
        .unwrap()
        .try_acquire()
        .await
        .expect("granted");
    guard.extend(ms(30_000)).await.expect("extended");
    assert_eq!(guard.deadline(), clock.now() + ms(30_000 - 300 - 2));
    pass(&clock, ms(9_900)).await;
    assert_eq!(asked(&script).len(), 2);
    pass(&clock, ms(200)).await;
    assert_eq!(asked(&script).len(), 3, "renewed at a third of the new lease");
}

#[tokio::test]
async fn shutting_down_releases_everything_and_tells_who_held_it() {
    let (client, script, _) = scripted([granted(9_000, 0), released()]);
    let guard = client.lock("orders", LockSettings::new()).unwrap().try_acquire().await.expect("granted");
    client.inner().closing.cancel();
    let released = client.inner().holdings.release_all(ms(1_000)).await;
    assert_eq!(released, [("lock:orders".to_owned(), Ok(()))]);
    assert!(guard.lost().is_cancelled() && !guard.is_held());
    drop(guard);
    settle().await;
    assert_eq!(asked(&script).len(), 2, "released once");
    assert_eq!(
        client.lock("orders", LockSettings::new()).unwrap().try_acquire().await.map(drop),
        Err(Error::ShuttingDown)
    );
    settle().await;
    assert_eq!(client.inner().tasks.len(), 0, "and the watchdog has gone");
}

#[tokio::test]
async fn the_watchdog_outstays_the_last_release_a_second() {
    let (client, _, clock) = scripted([granted(9_000, 0), released()]);
    client
        .lock("orders", LockSettings::new())
        .unwrap()
        .try_acquire()
        .await
        .expect("granted")
        .release()
        .await
        .expect("released");
    settle().await;
    assert_eq!(client.inner().tasks.len(), 1);
    pass(&clock, ms(2_100)).await;
    assert_eq!(client.inner().tasks.len(), 0);
}

#[test]
fn a_guard_may_be_dropped_where_there_is_no_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (client, script, _) = scripted([granted(9_000, 0), released()]);
    let guard = runtime.block_on(client.lock("orders", LockSettings::new()).unwrap().try_acquire()).expect("granted");
    drop(guard);
    runtime.block_on(settle());
    assert_eq!(asked(&script)[1][1], "RELEASE");
}

#[tokio::test]
async fn a_release_that_is_cancelled_goes_on_in_the_background() {
    let (client, script, clock) = scripted([granted(9_000, 0), Err(AWAY), Err(AWAY), released()]);
    let guard = client.lock("orders", LockSettings::new()).unwrap().try_acquire().await.expect("granted");
    assert_eq!(guard.release().await, Err(AWAY));
    pass(&clock, ms(1_000)).await;
    assert_eq!(asked(&script).iter().filter(|words| words[1] == "RELEASE").count(), 3);
    assert!(script.lines.lock().replies.is_empty(), "until it was answered, and then no more");
}
