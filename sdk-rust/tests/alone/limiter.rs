//! The limiter as services use it, on `memory://`: what it promises a whole fleet.

use std::time::Duration;

use resil::ConnectSettings;
use resil::clock::Clock;
use resil::limiter::{Limit, Limiter};

async fn fleet(url: &str, processes: usize, clock: &Clock, limit: &Limit) -> Vec<Limiter> {
    let mut limiters = Vec::new();
    for _ in 0..processes {
        let client = ConnectSettings::new(url).clock(clock.clone()).connect().await.unwrap();
        limiters.push(client.limiter("api", limit.clone()).unwrap());
    }
    limiters
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn twenty_processes_together_get_no_more_than_the_limit() {
    let clock = Clock::driven();
    for (url, limit) in [
        ("memory://limit-buckets", Limit::per_second(100).burst(30)),
        ("memory://limit-windows", Limit::window(30, Duration::from_secs(1))),
    ] {
        let limiters = fleet(url, 20, &clock, &limit).await;
        let callers: Vec<_> = limiters
            .into_iter()
            .map(|limiter| {
                tokio::spawn(async move {
                    let mut granted = 0;
                    for _ in 0..50 {
                        granted += limiter.check("k").await.unwrap().granted;
                    }
                    granted
                })
            })
            .collect();
        let mut granted = 0;
        for caller in callers {
            granted += caller.await.unwrap();
        }
        assert_eq!(granted, 30);
    }
}

#[tokio::test]
async fn the_turns_of_two_processes_do_not_overlap() {
    let clock = Clock::driven();
    let limiters = fleet("memory://limit-turns", 2, &clock, &Limit::per_second(10).burst(1)).await;
    let begun = clock.now();
    let mut waiting = Vec::new();
    for index in 0..6 {
        let (limiter, clock) = (limiters[index % 2].clone(), clock.clone());
        waiting.push(tokio::spawn(async move {
            limiter.until_ready("k", Duration::from_secs(5)).await.unwrap();
            clock.now()
        }));
    }
    let mut at = Vec::new();
    for waiter in waiting {
        while !waiter.is_finished() {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            if !waiter.is_finished() {
                clock.advance(Duration::from_millis(10));
            }
        }
        at.push((waiter.await.unwrap() - begun).as_millis());
    }
    at.sort_unstable();
    assert_eq!(at, [0, 100, 200, 300, 400, 500]);
}

#[tokio::test]
async fn cells_that_are_reserved_together_have_one_turn() {
    let clock = Clock::driven();
    let limiters = fleet("memory://limit-together", 1, &clock, &Limit::per_second(10).burst(4)).await;
    let limiter = &limiters[0];
    let second = Duration::from_secs(1);
    limiter.until_ready_n("k", 4, second).await.unwrap();
    let too_many = limiter.until_ready_n("k", 5, second).await.unwrap_err();
    assert_eq!(too_many.retry_after(), None, "more than the bucket holds never have a turn");
    let late = limiter.until_ready_n("k", 3, Duration::from_millis(299)).await.unwrap_err();
    assert_eq!(late.retry_after(), Some(Duration::from_millis(1)));
    {
        let mut waiting = std::pin::pin!(limiter.until_ready_n("k", 3, second));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        assert_eq!(limiter.peek("k").await.unwrap().reset_after, Duration::from_millis(700));
    }
    tokio::task::yield_now().await;
    assert_eq!(limiter.peek("k").await.unwrap().reset_after, Duration::from_millis(400), "dropped, all are given back");
}
