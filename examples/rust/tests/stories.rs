//! Every example keeps its promises: in memory, on a real server, and as the program that a newcomer runs.

use std::process::Command;
use std::time::Duration;

use resil::{Code, Failure};
use resil_harness::{Postgres, RabbitMq, Server};

#[allow(dead_code, reason = "only main uses it")]
#[path = "../batch_job.rs"]
mod batch_job;
#[allow(dead_code, reason = "only main uses it")]
#[path = "../grpc_client.rs"]
mod grpc_client;
#[allow(dead_code, reason = "only main uses it")]
#[path = "../http_api.rs"]
mod http_api;
#[allow(dead_code, reason = "only main uses it")]
#[path = "../order_service.rs"]
mod order_service;
#[allow(dead_code, reason = "only main uses it")]
#[path = "../order_worker.rs"]
mod order_worker;
#[allow(dead_code, reason = "only main uses it")]
#[path = "../payments.rs"]
mod payments;
#[allow(dead_code, reason = "only main uses it")]
#[path = "../slow_store.rs"]
mod slow_store;

/// No story takes that long.
const BOUND: Duration = Duration::from_secs(120);

/// The story of an example in memory and on a server, each judged by the same words.
macro_rules! played_twice {
    ($example:ident, $promise:ident, $judge:expr) => {
        mod $promise {
            use super::*;

            async fn judged(url: &str) {
                let seen = tokio::time::timeout(BOUND, $example::story(url)).await.expect("it ends").expect("a story");
                $judge(seen);
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn in_memory() {
                judged("memory://").await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_a_server() {
                let server = Server::fresh();
                judged(&server.url()).await;
            }
        }
    };
}

fn charged_once(seen: &order_service::Seen) {
    assert_eq!(seen.charged, (100..120).collect::<Vec<_>>(), "each once");
    assert_eq!(seen.dead.len(), 1, "{:?}", seen.dead);
    assert!(seen.dead[0].contains("EOF"), "{:?}", seen.dead);
}

played_twice!(order_service, every_order_of_the_service_is_charged_once, |seen: order_service::Seen| charged_once(
    &seen
));

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_go_through_an_outbox_and_a_broker_that_restarts() {
    let (server, postgres, mut rabbit) =
        tokio::task::spawn_blocking(|| (Server::fresh(), Postgres::start(), RabbitMq::start())).await.unwrap();
    let brokers = order_service::Brokers { postgres: postgres.url(), rabbit: rabbit.url() };
    let restarted = std::sync::Mutex::new(None);
    let restart = async || {
        let restarting = tokio::task::spawn_blocking(move || {
            ["order-events", "order-events.dead"].iter().for_each(|queue| rabbit.wait_until_registered(queue));
            rabbit.restart();
            rabbit
        });
        // Kept until the story is over.
        *restarted.lock().unwrap() = Some(restarting.await.unwrap());
    };
    let url = server.url();
    let telling = order_service::story_with(&url, Some(brokers), restart);
    let seen = tokio::time::timeout(BOUND, telling).await.expect("it ends").expect("a story");
    charged_once(&seen);
    assert!(seen.connections >= 2, "the broker was away, and the worker came back by itself: {seen:?}");
}

played_twice!(order_worker, every_order_is_charged_once_and_the_poison_is_dead, |seen: order_worker::Seen| {
    assert_eq!(seen.charged, ["order-1", "order-2", "order-3", "order-4", "order-6"]);
    assert_eq!(seen.dead, ["order-5: not an order"]);
    assert!(seen.first.done < 5, "the first worker was stopped in the middle: {seen:?}");
    assert_eq!(seen.first.done + seen.second.done, 5);
});

played_twice!(payments, every_order_is_paid_once, |seen: payments::Seen| {
    assert_eq!((seen.requests, seen.replays, seen.payments_after_duplicates), (100, 99, 1), "one of them pays");
    assert_eq!(seen.mismatch, Some(Code::IdempotencyMismatch));
    let [(carried, highest)] = seen.refused_fences[..] else { panic!("one write was refused: {seen:?}") };
    assert!(carried < highest);
    match &seen.sleeper {
        Err(Failure::Inner(payments::PayError::StaleFence)) => {}
        Err(failure) => assert_eq!(failure.code(), Some(Code::LockLost)),
        Ok(outcome) => panic!("who slept over its lease has not paid: {outcome:?}"),
    }
    assert!(!seen.meanwhile.replayed);
    assert!(!seen.sleeper_again.replayed, "paid once, by the caller that asked again");
    assert_eq!(seen.sleeper_again.value.as_ref().map(|receipt| receipt.cents), Some(900));
    assert_eq!((seen.after_crash.attempt, seen.after_crash.replayed), (2, false));
    assert_eq!((seen.payments_in_all, seen.balance), (4, 100_000 - 700 - 900 - 300 - 500));
});

played_twice!(http_api, limits_and_keys_hold_over_http, |seen: http_api::Seen| {
    let statuses: Vec<u16> = seen.free.iter().map(|reply| reply.status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429], "five a minute, from any process");
    assert!(seen.pro.iter().all(|reply| reply.status == 200), "{:?}", seen.pro);
    for (index, reply) in seen.free.iter().enumerate() {
        assert_eq!(reply.header("ratelimit-policy"), Some(r#""free";q=5;w=60"#));
        let left = 4_usize.saturating_sub(index).to_string();
        assert_eq!(reply.header("x-ratelimit-remaining"), Some(&*left), "response {index}");
        assert_eq!(reply.header("retry-after").is_some(), reply.status == 429, "only a refused caller learns when");
    }
    let refused = &seen.free[5];
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert!(refused.body.contains("RATE_LIMIT_EXCEEDED"), "{}", refused.body);
    let wait: u64 = refused.header("retry-after").and_then(|seconds| seconds.parse().ok()).expect("whole seconds");
    assert!((1..=12).contains(&wait), "one in twelve seconds: {wait}");

    assert_eq!((seen.without_key.status, seen.first.status), (400, 201));
    assert_eq!(seen.while_running.status, 409);
    assert!(seen.while_running.header("retry-after").is_some());
    assert!(seen.while_running.body.contains("IDEMPOTENCY_BUSY"), "{}", seen.while_running.body);
    assert_eq!((seen.again.status, &seen.again.body), (201, &seen.first.body), "the first reply again");
    assert_eq!(
        (seen.first.header("idempotency-replayed"), seen.again.header("idempotency-replayed")),
        (None, Some("true"))
    );
    assert_eq!(seen.other_body.status, 422);
    assert_eq!(seen.shipped, 1);
});

played_twice!(
    grpc_client,
    a_broken_server_is_left_alone_and_stragglers_are_not_waited_for,
    |seen: grpc_client::Seen| {
        assert_eq!(seen.calls_for_straggler, 2, "the call, and its hedge");
        assert!(seen.straggler_took >= Duration::from_millis(100), "{:?}", seen.straggler_took);
        assert!(seen.straggler_took < Duration::from_secs(10), "{:?}", seen.straggler_took);
        assert!((5..=15).contains(&seen.doomed_calls), "of two thousand: {}", seen.doomed_calls);
        assert_eq!((seen.refused_here, seen.refused_there), (Some(Code::CircuitOpen), Some(Code::CircuitOpen)));
        assert_eq!(seen.status, Some(tonic::Code::Unavailable));
        assert_eq!((seen.calls_while_open, seen.remembered.cents), (0, 420));
        assert!(seen.closed_again);
    }
);

played_twice!(slow_store, a_slow_store_is_asked_once, |seen: slow_store::Seen| {
    let tea = |cents| Some(slow_store::Product { name: "tea".to_owned(), cents });
    assert_eq!((seen.first.len(), seen.loads_first), (1_000, 1));
    assert!(seen.first.iter().all(|got| *got == tea(420)));
    assert!(seen.stale == 100 || seen.stale_took >= Duration::from_millis(300), "nobody waits: {seen:?}");
    assert_eq!(seen.loads_stale, 1, "one loads it anew");
    assert!(seen.after_commit.iter().all(|got| *got == tea(450)), "{:?}", seen.after_commit);
    assert_eq!((seen.unknown, seen.loads_unknown), (200, 1));
    assert_eq!(seen.served_while_down, tea(450));
    assert_eq!((seen.failed, seen.loads_while_down), (200, 2), "one load of each product");
});

played_twice!(batch_job, a_partner_is_not_overrun_and_nothing_is_cut_in_half, |seen: batch_job::Seen| {
    assert_eq!(seen.whole_night, batch_job::Tally { sent: 118, refused: 1, panicked: 1, failed: 0 });
    assert!((2..=4).contains(&seen.most_at_once), "{}", seen.most_at_once);
    assert_eq!((seen.attempts_of_a_busy_one, seen.attempts_of_a_refused_one), (2, 1));
    assert!((10..=42).contains(&seen.stopped_early.sent), "those that were begun: {:?}", seen.stopped_early);
    assert_eq!((seen.stopped_early.failed, seen.stopped_early.panicked), (0, 0));
    assert_eq!(seen.taken_by_partner, seen.stopped_early.sent);
    assert!(seen.report.is_clean(), "{:?}", seen.report);
    assert!(!seen.after_shutdown, "nothing new begins");
});

#[test]
fn a_newcomer_can_run_every_example_without_any_set_up() {
    for program in [
        env!("CARGO_BIN_EXE_payments"),
        env!("CARGO_BIN_EXE_http_api"),
        env!("CARGO_BIN_EXE_grpc_client"),
        env!("CARGO_BIN_EXE_slow_store"),
        env!("CARGO_BIN_EXE_batch_job"),
    ] {
        let output = Command::new(program).env_remove("RESIL_URL").output().expect("it starts");
        let (story, problem) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{program}: {problem}");
        assert!(story.lines().count() >= 5, "{program} tells a story: {story}");
    }
}
