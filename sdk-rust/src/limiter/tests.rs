//! What a limiter says to a server, when it says nothing, and what it does while nobody replies.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::sync::Semaphore;

use super::{DecidedBy, Limit, Limiter};
use crate::backend::Backend;
use crate::backend::memory::Memory;
use crate::backend::scripted::{Replying, Scripted};
use crate::client::{Client, ConnectSettings};
use crate::clock::Clock;
use crate::error::{Code, Error};
use crate::health::{Away, Status};

const SECOND: Duration = Duration::from_secs(1);
const GONE: Error = Error::BackendUnavailable("gone");

/// A server that is memory behind a line that can be cut.
struct Server {
    scripted: Scripted,
    is_away: Arc<Mutex<bool>>,
    clock: Clock,
    client: Client,
}

impl Server {
    fn new() -> Self {
        Self::shared_by(1)
    }

    fn shared_by(instances: u32) -> Self {
        let (clock, scripted, is_away) = (Clock::driven(), Scripted::new(), Arc::new(Mutex::new(false)));
        let (memory, line) = (Memory::new(clock.clone()), Arc::clone(&is_away));
        let reply = move |command: &resil_wire::command::Command<'_>| {
            if *line.lock() { Err(GONE) } else { memory.call(command) }
        };
        scripted.lines.lock().by = Some(Replying(Box::new(reply)));
        let options = ConnectSettings::new("memory://").clock(clock.clone()).instances(instances);
        let client = Client::with_backend(Backend::Scripted(scripted.clone()), options);
        Self { scripted, is_away, clock, client }
    }

    fn limiter(&self, limit: Limit) -> Limiter {
        self.client.limiter("l", limit).unwrap()
    }

    fn cut(&self) {
        *self.is_away.lock() = true;
    }

    fn mend(&self) {
        *self.is_away.lock() = false;
    }

    /// How many questions were asked, and forgets them.
    fn asked(&self) -> usize {
        std::mem::take(&mut self.scripted.lines.lock().asked).len()
    }
}

async fn let_tasks_run() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_states_key_is_tagged_with_the_callers_key() {
    let server = Server::new();
    server.limiter(Limit::per_second(5).burst(9)).check_n("alice", 2).await.unwrap();
    let asked = server.scripted.lines.lock().asked[0].join(&b' ');
    assert_eq!(String::from_utf8(asked).unwrap(), "RES.GCRA resil:limit:l:{alice} 5 1s BURST 9 COST 2");
    for name in ["", "a{b", "a}b"] {
        let refused = server.client.limiter(name, Limit::per_second(1)).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidPolicy);
    }
}

#[tokio::test]
async fn a_denied_key_is_not_asked_until_its_time() {
    let server = Server::new();
    let limiter = server.limiter(Limit::per_second(2));
    for remaining in [1, 0] {
        let verdict = limiter.check("k").await.unwrap();
        assert_eq!((verdict.granted, verdict.capacity, verdict.remaining), (1, 2, remaining));
        assert_eq!((verdict.retry_after, verdict.decided_by), (Some(Duration::ZERO), DecidedBy::Server));
    }
    let denied = limiter.check("k").await.unwrap();
    assert_eq!((denied.granted, denied.retry_after), (0, Some(SECOND / 2)));
    server.asked();
    server.clock.advance(SECOND / 4);
    let again = limiter.check("k").await.unwrap();
    assert_eq!((again.decided_by, again.retry_after), (DecidedBy::DenyCache, Some(SECOND / 4)));
    assert_eq!(limiter.acquire("k").await.unwrap_err().retry_after(), Some(SECOND / 4));
    assert_eq!(limiter.up_to("k", 5).await.unwrap().decided_by, DecidedBy::DenyCache);
    assert_eq!(server.asked(), 0);
    assert!(limiter.check("other").await.unwrap().is_granted(), "another key is another matter");
    server.clock.advance(SECOND / 4);
    assert!(limiter.check("k").await.unwrap().is_granted());
}

#[tokio::test]
async fn under_a_daily_limit_the_server_is_asked_after_seconds() {
    let server = Server::new();
    let limiter = server.limiter(Limit::per_day(1));
    limiter.acquire("k").await.unwrap();
    let denied = limiter.check("k").await.unwrap();
    assert_eq!((denied.granted, denied.retry_after), (0, Some(SECOND * 86_400)));
    server.asked();
    server.clock.advance(SECOND * 10 - Duration::from_millis(1));
    assert_eq!(limiter.check("k").await.unwrap().decided_by, DecidedBy::DenyCache);
    assert_eq!(server.asked(), 0);
    server.clock.advance(Duration::from_millis(1));
    let again = limiter.check("k").await.unwrap();
    let left = Some(SECOND * (86_400 - 10));
    assert_eq!((again.granted, again.retry_after, again.decided_by), (0, left, DecidedBy::Server));
}

#[tokio::test]
async fn a_denial_of_five_cells_does_not_deny_one() {
    let server = Server::new();
    let limiter = server.limiter(Limit::per_second(5));
    assert!(limiter.check("k").await.unwrap().is_granted());
    assert!(!limiter.check_n("k", 5).await.unwrap().is_granted());
    assert!(limiter.check("k").await.unwrap().is_granted());
    let never = limiter.check_n("k", 6).await.unwrap();
    assert_eq!((never.granted, never.retry_after), (0, None));
    for cost in [0, u32::MAX] {
        assert_eq!(limiter.check_n("k", cost).await.unwrap_err().code(), Code::InvalidArgument);
    }
}

#[tokio::test]
async fn a_refund_through_any_limiter_ends_a_denial() {
    let server = Server::new();
    let (one, other) = (server.limiter(Limit::per_second(1)), server.limiter(Limit::per_second(1)));
    one.acquire("k").await.unwrap();
    one.acquire("k").await.unwrap_err();
    assert_eq!(other.refund("k", 1).await.unwrap().granted, 1);
    one.acquire("k").await.unwrap();
}

#[tokio::test]
async fn a_refund_that_overtakes_a_denial_ends_it_too() {
    let server = Server::new();
    let limiter = server.limiter(Limit::per_second(1));
    limiter.acquire("k").await.unwrap();
    let deliveries = Arc::new(Semaphore::new(0));
    server.scripted.lines.lock().deliveries = Some(Arc::clone(&deliveries));
    let denied = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.check("k").await }
    });
    let_tasks_run().await;
    server.scripted.lines.lock().deliveries = None;
    limiter.refund("k", 1).await.unwrap();
    deliveries.add_permits(1);
    assert!(!denied.await.unwrap().unwrap().is_granted());
    limiter.acquire("k").await.unwrap();
}

#[tokio::test]
async fn all_there_are_can_be_had_and_looking_is_free() {
    let server = Server::new();
    let limiter = server.limiter(Limit::per_second(5));
    assert_eq!(limiter.peek("k").await.unwrap().granted, 5);
    assert_eq!(limiter.up_to("k", 3).await.unwrap().granted, 3);
    let rest = limiter.up_to("k", 3).await.unwrap();
    assert_eq!((rest.granted, rest.retry_after), (2, Some(SECOND / 5)));
    server.asked();
    assert!(!limiter.check("k").await.unwrap().is_granted());
    assert_eq!(server.asked(), 0, "there was nothing left, so nobody need be asked");
    assert_eq!(limiter.peek("k").await.unwrap().granted, 0);
}

#[tokio::test]
async fn all_tiers_grant_or_none_does() {
    let server = Server::new();
    let limiter = server.limiter(Limit::per_second(2).and(Limit::per_minute(3)));
    assert_eq!(limiter.check_n("k", 2).await.unwrap().remaining, 0);
    server.clock.advance(SECOND);
    assert!(!limiter.check_n("k", 2).await.unwrap().is_granted(), "one is left of the minute");
    assert!(limiter.check("k").await.unwrap().is_granted());
}

#[tokio::test]
async fn an_exact_window_never_exceeds_its_limit_in_any_period() {
    let server = Server::new();
    let limiter = server.limiter(Limit::window(2, SECOND));
    limiter.acquire("k").await.unwrap();
    server.clock.advance(SECOND * 9 / 10);
    limiter.acquire("k").await.unwrap();
    assert_eq!(limiter.check("k").await.unwrap().retry_after, Some(SECOND / 10));
    assert_eq!(limiter.refund("k", 1).await.unwrap_err().code(), Code::InvalidArgument);
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.until_ready("k", SECOND).await }
    });
    let_tasks_run().await;
    assert!(!waiting.is_finished());
    server.clock.advance(SECOND / 10);
    let_tasks_run().await;
    waiting.await.unwrap().unwrap();
    let too_long = limiter.until_ready("k", SECOND / 2).await.unwrap_err();
    assert_eq!(too_long.retry_after(), Some(SECOND * 9 / 10));
}

#[tokio::test]
async fn turns_are_spread_evenly_and_come_in_order() {
    let server = Server::new();
    let limiter = server.limiter(Limit::per_second(10).burst(1));
    let order: Arc<Mutex<Vec<usize>>> = Arc::default();
    let mut waiting = Vec::new();
    for index in 0..5 {
        let (limiter, order) = (limiter.clone(), Arc::clone(&order));
        waiting.push(tokio::spawn(async move {
            limiter.until_ready("k", SECOND).await.unwrap();
            order.lock().push(index);
        }));
        let_tasks_run().await;
    }
    for turn in 1..5 {
        assert_eq!(*order.lock(), (0..turn).collect::<Vec<_>>());
        server.clock.advance(SECOND / 10);
        let_tasks_run().await;
    }
    for waiter in waiting {
        waiter.await.unwrap();
    }
    assert_eq!(server.asked(), 5, "one question each");
    let late = limiter.until_ready("k", Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(late.code(), Code::RateLimitExceeded);
}

#[tokio::test]
async fn a_caller_that_stops_waiting_gives_its_turn_back() {
    for is_answered in [true, false] {
        let server = Server::new();
        let limiter = server.limiter(Limit::per_second(1));
        limiter.acquire("k").await.unwrap();
        let deliveries = Arc::new(Semaphore::new(if is_answered { 100 } else { 0 }));
        server.scripted.lines.lock().deliveries = Some(Arc::clone(&deliveries));
        let waiting = tokio::spawn({
            let limiter = limiter.clone();
            async move { limiter.until_ready("k", SECOND * 10).await }
        });
        let_tasks_run().await;
        waiting.abort();
        let_tasks_run().await;
        deliveries.add_permits(100);
        let_tasks_run().await;
        assert_eq!(server.client.inner().tasks.len(), 0);
        server.clock.advance(SECOND);
        limiter.acquire("k").await.unwrap();
    }
}

#[tokio::test]
async fn each_mode_keeps_its_promise_while_the_server_is_away() {
    let server = Server::shared_by(2);
    let limiter = |name, away| server.client.limiter(name, Limit::per_second(4).when_away(away)).unwrap();
    let (open, closed) = (limiter("open", Away::Open), limiter("closed", Away::Closed));
    let local = server.client.limiter("local", Limit::per_second(4)).unwrap();
    server.cut();
    for _ in 0..9 {
        let verdict = open.check("k").await.unwrap();
        assert_eq!((verdict.granted, verdict.decided_by), (1, DecidedBy::AwayOpen));
        assert_eq!(closed.check("k").await, Err(GONE));
    }
    let granted = |verdict: super::Verdict| (verdict.granted, verdict.decided_by);
    assert_eq!(granted(local.check("k").await.unwrap()), (1, DecidedBy::Local));
    assert_eq!(granted(local.check("k").await.unwrap()), (1, DecidedBy::Local));
    assert_eq!(granted(local.check("k").await.unwrap()), (0, DecidedBy::Local), "half of four is two");
    assert_eq!(local.check("k").await.unwrap().retry_after, Some(SECOND / 2), "at half the rate");
    server.mend();
    assert_eq!(granted(local.check("k").await.unwrap()), (1, DecidedBy::Server), "a local denial is not kept");
    let health = server.client.inner().health.look(Some(crate::backend::WhyAway::test())).policies;
    assert_eq!((health["limit:open"], health["limit:closed"]), (Status::Degraded, Status::Unhealthy));
}

#[tokio::test]
async fn several_limits_grant_together_or_not_at_all() {
    let server = Server::new();
    let user = server.client.limiter("user", Limit::per_second(2)).unwrap();
    let all = server.client.limiter("all", Limit::per_second(3)).unwrap();
    let both = [(&user, "k"), (&all, "k")];
    let granted = server.client.check_all(&both, 2).await.unwrap();
    assert_eq!((granted.granted, granted.refused_by, granted.each.len()), (2, None, 2));
    assert_eq!((granted.binding.capacity, granted.binding.remaining), (2, 0));
    let refused = server.client.check_all(&both, 1).await.unwrap();
    assert_eq!((refused.granted, refused.refused_by), (0, Some(0)));
    assert_eq!(all.peek("k").await.unwrap().granted, 1, "nothing was taken from the other");
    server.asked();
    let again = server.client.check_all(&both, 1).await.unwrap();
    assert_eq!((again.refused_by, again.binding.decided_by), (Some(0), DecidedBy::DenyCache));
    assert!(!user.check("k").await.unwrap().is_granted());
    assert_eq!(server.asked(), 0);
    assert!(all.check("k").await.unwrap().is_granted(), "who did not refuse is not denied");
    let tiers = server.client.limiter("tiers", Limit::per_second(1).and(Limit::per_day(5))).unwrap();
    for wrong in [vec![(&tiers, "k")], vec![(&user, "k"), (&user, "k")], vec![]] {
        let refused = server.client.check_all(&wrong, 1).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
    }
    server.cut();
    assert_eq!(server.client.check_all(&[(&user, "x"), (&all, "x")], 1).await.unwrap().granted, 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Two clients on one clock and one store: the second has no memory of denials, so it is what the server would say.
    #[test]
    fn the_deny_cache_says_what_the_server_would_say(
        limit in 1u32..5, burst in 1u32..8,
        steps in prop::collection::vec((0u8..6, 0u8..3, 1u32..6, 0u64..700), 1..120),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (server, plain) = (Server::new(), Memory::new(Clock::driven()));
            let limiter = server.limiter(Limit::per_second(limit).burst(burst));
            let mut elapsed = Duration::ZERO;
            for (kind, key, cells, pause_ms) in steps {
                let pause = Duration::from_millis(pause_ms);
                server.clock.advance(pause);
                elapsed += pause;
                let ask = match kind {
                    0 => resil_core::rate_limit::Ask::UpTo(cells),
                    1 => resil_core::rate_limit::Ask::Refund(cells),
                    _ => resil_core::rate_limit::Ask::Take(cells),
                };
                let key = [b'a' + key];
                let at = resil_core::Instant::from_us(1_700_000_000_000_000 + elapsed.as_micros() as i64);
                let whole = limiter.key(&key);
                let expected = plain.call_at(&limiter.0.limit.shape.command(&whole, ask), at);
                let expected = super::read(&expected.unwrap(), &limiter.0.limit.shape, DecidedBy::Server).unwrap();
                let seen = match ask {
                    resil_core::rate_limit::Ask::UpTo(cells) => limiter.up_to(key, cells).await,
                    resil_core::rate_limit::Ask::Refund(cells) => limiter.refund(key, cells).await,
                    _ => limiter.check_n(key, cells).await,
                };
                let seen = seen.unwrap();
                assert_eq!(seen.granted, expected.granted);
                if seen.decided_by == DecidedBy::DenyCache {
                    assert_eq!(seen.granted, 0, "it never grants");
                    assert!(seen.retry_after <= expected.retry_after.map(|wait| wait + Duration::from_millis(1)));
                }
            }
        });
    }
}
