//! Workers of a ledger through the worst days of its server: nothing that was failed is lost, nobody is stuck, a loop and a stream go
//! on by themselves, and what a caller learns of a failure is true on the replica that takes over.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::Mutex;
use resil::dead_letters::{
    ClassChange, DeadLetters, DeadLettersSettings, FailVerdict, HandledReport, LedgerChange, Letter, LetterState,
    Settlement, TakenMessage,
};
use resil::{CancellationToken, Client, Code, Error};
use resil_harness::{Server, wait_for_sync, wait_until_counted};
use tokio::task::JoinHandle;

use crate::proxy::{Proxy, Way};
use crate::scene::{BOUND, careful, client, eventually, ms, options, timed};

fn settings() -> DeadLettersSettings {
    DeadLettersSettings::new().lease(ms(2_000)).grace(ms(300)).wait(ms(1_000)).concurrency(4).actor("ada")
}

/// A ledger that retries soon, and as often as a bad day needs.
async fn ledger(client: &Client, settings: DeadLettersSettings) -> DeadLetters {
    let letters = client.dead_letters("orders", settings).expect("valid");
    let soon = ClassChange::default().base(ms(100)).cap(ms(100)).retries(1_000);
    letters.configure(&LedgerChange::new().jitter("none").crashes(1_000).transient(soon)).await.expect("configured");
    letters
}

fn order(number: u32) -> Letter {
    Letter::of("shop", &number.to_string()).payload(format!("order {number}"))
}

/// Says it until somebody has heard it.
async fn fail(letters: &DeadLetters, number: u32) {
    eventually("it is failed", async || letters.fail(&order(number), "timeout").await.is_ok()).await;
}

/// Which messages a handler has seen, and how often.
#[derive(Default, Clone)]
struct Seen(Arc<Mutex<BTreeMap<String, u32>>>);

impl Seen {
    fn note(&self, message: &TakenMessage) {
        *self.0.lock().entry(message.id().into_owned()).or_default() += 1;
    }

    fn count(&self) -> usize {
        self.0.lock().len()
    }
}

/// A loop that handles everything, in a task of its own, and what stops it.
fn employ(letters: &DeadLetters, seen: &Seen) -> (CancellationToken, JoinHandle<Result<HandledReport, Error>>) {
    let (stop, letters, seen) = (CancellationToken::new(), letters.clone(), seen.clone());
    let until = stop.clone();
    let task = tokio::spawn(async move {
        let handler = |message: Arc<TakenMessage>| {
            let seen = seen.clone();
            async move {
                tokio::time::sleep(ms(20)).await;
                seen.note(&message);
                Ok::<_, Infallible>(())
            }
        };
        letters.run_until(&until, |error: &Infallible| Settlement::of(error), handler).await
    });
    (stop, task)
}

/// All of them are done in the end; asked by a client whose connections are nobody's business.
async fn all_done(letters: &DeadLetters, count: u32) {
    eventually("everything is done", async || letters.info().await.is_ok_and(|info| info.entries == 0)).await;
    for number in 0..count {
        let standing = letters.standing(&format!("shop/{number}")).await.expect("there");
        assert_eq!(standing, Some(LetterState::Done), "order {number}");
    }
}

async fn end_loop(stop: CancellationToken, task: JoinHandle<Result<HandledReport, Error>>) -> HandledReport {
    stop.cancel();
    timed("the loop", task).await.0.expect("no panic").expect("it ends in good order")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_goes_on_after_its_server_was_killed() {
    let mut server = careful();
    let client = client(&server).await;
    let letters = ledger(&client, settings()).await;
    let seen = Seen::default();
    let (stop, task) = employ(&letters, &seen);
    for round in 0..3 {
        for number in 0..15 {
            fail(&letters, round * 15 + number).await;
        }
        server.restart_after_kill();
    }
    eventually("all are seen", async || seen.count() == 45).await;
    all_done(&letters, 45).await;
    let report = end_loop(stop, task).await;
    assert!(report.done + report.unsettled >= 45 && report.failed == 0, "{report:?}");
    assert!(client.shutdown(ms(5_000)).await.is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_goes_on_after_its_server_was_killed() {
    let mut server = careful();
    let client = client(&server).await;
    let letters = ledger(&client, settings()).await;
    let (seen, errors) = (Seen::default(), Arc::new(AtomicU64::new(0)));
    let task = tokio::spawn({
        let (letters, seen, errors) = (letters.clone(), seen.clone(), Arc::clone(&errors));
        async move {
            let mut entries = Box::pin(letters.entries());
            while let Some(letter) = entries.next().await {
                match letter {
                    Ok(letter) => {
                        seen.note(&letter);
                        let _ = letter.done().await;
                    }
                    Err(error) => {
                        assert!(matches!(error.code(), Code::BackendUnavailable | Code::Timeout), "{error}");
                        errors.fetch_add(1, SeqCst);
                    }
                }
            }
        }
    });
    for round in 0..3 {
        for number in 0..10 {
            fail(&letters, round * 10 + number).await;
        }
        server.restart_after_kill();
    }
    eventually("all are seen", async || seen.count() == 30).await;
    all_done(&letters, 30).await;
    client.shutdown(ms(5_000)).await;
    timed("the stream", task).await.0.expect("it ends with the client");
    println!("{} errors on the way", errors.load(SeqCst));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_goes_on_after_its_connections_were_cut() {
    let server = Server::fresh();
    let (proxy, other) = (Proxy::to(&server).await, client(&server).await);
    let theirs = options(&proxy.url()).connect().await.expect("there");
    let letters = ledger(&other, settings()).await;
    let seen = Seen::default();
    let (stop, task) = employ(&theirs.dead_letters("orders", settings()).unwrap(), &seen);
    let cuts: [&dyn Fn(&Proxy); 6] = [
        &|proxy| proxy.cut(),
        &|proxy| proxy.cut_at(Way::ToServer),
        &|proxy| proxy.cut_at(Way::ToClient),
        &|proxy| proxy.freeze_way(Way::ToServer),
        &|proxy| proxy.freeze_way(Way::ToClient),
        &|proxy| proxy.close(),
    ];
    let mut count = 0;
    for cut in cuts {
        for _ in 0..8 {
            fail(&letters, count).await;
            count += 1;
        }
        eventually("some are on their way", async || seen.count() as u32 + 6 >= count).await;
        cut(&proxy);
        tokio::time::sleep(ms(700)).await;
        proxy.clear_up();
    }
    eventually("all are seen", async || seen.count() as u32 == count).await;
    all_done(&letters, count).await;
    end_loop(stop, task).await;
    assert_eq!(letters.info().await.unwrap().dead, 0, "nobody is blamed for ever");
    theirs.shutdown(ms(5_000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_panics_or_dawdles_harms_its_message_alone() {
    let server = Server::fresh();
    let client = client(&server).await;
    let letters = ledger(&client, settings().lease(ms(400))).await;
    for number in 0..4 {
        letters.fail(&order(number), "timeout").await.unwrap();
    }
    let (stop, dawdled) = (CancellationToken::new(), AtomicU64::new(0));
    let handler = |message: Arc<TakenMessage>| {
        let (stop, dawdled) = (&stop, &dawdled);
        async move {
            match message.id().as_ref() {
                "shop/0" if message.attempt() < 3 => panic!("on purpose"),
                // It waits for longer than its lease, which is renewed meanwhile.
                "shop/1" => {
                    tokio::time::sleep(ms(1_500)).await;
                    assert!(!message.lost().is_cancelled());
                    dawdled.fetch_add(1, SeqCst);
                }
                "shop/0" => stop.cancel(),
                _ => {}
            }
            Ok::<_, Infallible>(())
        }
    };
    let report = letters.run_until(&stop, |error: &Infallible| Settlement::of(error), handler);
    let report = timed("the loop", report).await.0.unwrap();
    assert_eq!((report.done, report.failed, report.unsettled), (4, 2, 0), "{report:?}");
    assert_eq!(dawdled.load(SeqCst), 1, "given out once");
    all_done(&letters, 4).await;
}

/// A handler that keeps its thread: the lease is renewed elsewhere.
#[tokio::test]
async fn a_handler_that_blocks_its_thread_keeps_its_message() {
    let server = Server::fresh();
    let client = client(&server).await;
    let letters = ledger(&client, settings().lease(ms(500))).await;
    letters.fail(&order(0), "timeout").await.unwrap();
    let (stop, runs) = (CancellationToken::new(), AtomicU64::new(0));
    let handler = |_: Arc<TakenMessage>| {
        let (stop, runs) = (&stop, &runs);
        async move {
            runs.fetch_add(1, SeqCst);
            std::thread::sleep(ms(2_000));
            stop.cancel();
            Ok::<_, Infallible>(())
        }
    };
    let report = letters.run_until(&stop, |error: &Infallible| Settlement::of(error), handler).await.unwrap();
    assert_eq!((report.done, report.unsettled, runs.load(SeqCst)), (1, 0, 1), "{report:?}");
    all_done(&letters, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_that_is_dropped_gives_back_what_it_handled() {
    let server = Server::fresh();
    let client = client(&server).await;
    let letters = ledger(&client, settings()).await;
    for number in 0..4 {
        letters.fail(&order(number), "timeout").await.unwrap();
    }
    let begun = AtomicU64::new(0);
    let handler = |_: Arc<TakenMessage>| {
        begun.fetch_add(1, SeqCst);
        std::future::pending::<Result<(), Infallible>>()
    };
    let running = letters.run(handler);
    tokio::select! {
        _ = running => panic!("it never ends"),
        _ = eventually("all are handled", async || begun.load(SeqCst) == 4) => {}
    }
    let batch = letters.take(4, ms(5_000)).await.unwrap();
    assert!(batch.letters.iter().all(|letter| (letter.lapses(), letter.attempt()) == (0, 1)), "nothing is counted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_waits_for_handlers_and_gives_the_rest_back() {
    let server = Server::fresh();
    let (theirs, other) = (client(&server).await, client(&server).await);
    let letters = ledger(&other, settings()).await;
    for number in 0..2 {
        letters.fail(&order(number), "timeout").await.unwrap();
    }
    let begun = Arc::new(AtomicU64::new(0));
    let task = tokio::spawn({
        let (letters, begun) = (theirs.dead_letters("orders", settings()).unwrap(), Arc::clone(&begun));
        async move {
            let handler = |message: Arc<TakenMessage>| {
                begun.fetch_add(1, SeqCst);
                async move {
                    // One ends in time, the other never would.
                    let rest = if message.id() == "shop/0" { ms(500) } else { Duration::MAX };
                    tokio::time::sleep(rest).await;
                    Ok::<_, Infallible>(())
                }
            };
            letters.run(handler).await
        }
    });
    eventually("both are handled", async || begun.load(SeqCst) == 2).await;
    timed("the shutdown", theirs.shutdown(ms(1_500))).await;
    let ended = timed("the loop", task).await.0.expect("no panic");
    println!("{ended:?}");
    assert_eq!(letters.standing("shop/0").await.unwrap(), Some(LetterState::Done));
    let back = letters.take(1, ms(10_000)).await.unwrap().letters.remove(0);
    assert_eq!((back.id().as_ref(), back.attempt(), back.lapses()), ("shop/1", 1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_is_safe_with_a_replica_or_an_error() {
    let primary = Server::fresh();
    let mut replica = Server::replica_of(&primary, resil_harness::Options::default());
    wait_until_counted(&primary, &replica);
    let client = client(&primary).await;
    let letters = ledger(&client, settings().replicas(1)).await;
    let verdict = letters.fail(&order(0), "timeout").await.expect("it is safe");
    assert!(matches!(verdict, FailVerdict::Retry { attempt: 1, .. }));
    let taken = letters.take(1, ms(5_000)).await.unwrap().letters.remove(0);

    replica.pause();
    let not_safe = |error: Error| {
        assert_eq!(error.code(), Code::BackendUnavailable);
        assert!(error.to_string().contains("do not acknowledge"), "{error}");
    };
    not_safe(timed("a failure", letters.fail(&order(1), "timeout")).await.0.unwrap_err());
    // Said again it is known to the primary, and still not safe.
    not_safe(timed("the same", letters.fail(&order(1), "timeout")).await.0.unwrap_err());
    not_safe(timed("a taken one", taken.fail("again")).await.0.unwrap_err());

    replica.resume();
    eventually("it is safe", async || {
        matches!(letters.fail(&order(1), "timeout").await, Ok(FailVerdict::Known { .. }))
    })
    .await;
    // What was reported is true on the one that takes over.
    wait_for_sync(&primary, &replica);
    drop(primary);
    resil_harness::ok(&mut replica.connect(), &["REPLICAOF", "NO", "ONE"]);
    let there = crate::scene::client(&replica).await;
    let letters = there.dead_letters("orders", settings()).unwrap();
    for number in 0..2 {
        assert!(letters.standing(&format!("shop/{number}")).await.unwrap().is_some());
    }
    replica.kill9();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_without_its_replica_says_so_and_goes_on() {
    let primary = Server::fresh();
    let mut replica = Server::replica_of(&primary, resil_harness::Options::default());
    wait_until_counted(&primary, &replica);
    let client = client(&primary).await;
    let letters = ledger(&client, settings().replicas(1)).await;
    for number in 0..3 {
        letters.fail(&order(number), "timeout").await.unwrap();
    }
    replica.kill9();
    let (stop, failed) = (CancellationToken::new(), AtomicU64::new(0));
    let handler = |message: Arc<TakenMessage>| {
        let first = message.attempt() == 1;
        if !first && failed.fetch_add(1, SeqCst) == 2 {
            stop.cancel();
        }
        async move { if first { Err(std::io::Error::other("no luck")) } else { Ok(()) } }
    };
    let report = letters.run_until(&stop, |error: &std::io::Error| Settlement::of(error), handler);
    let report = tokio::time::timeout(BOUND, report).await.expect("not stuck").unwrap();
    // The failures are with the primary, and nobody else knows of them.
    assert_eq!((report.done, report.failed, report.unsettled), (3, 0, 3), "{report:?}");
}

/// Primaries are killed one after the other, and the replica of each takes its place under the same address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_carried_over_failovers_ends_every_message_once() {
    const ROUNDS: u32 = 3;
    const EACH: u32 = 12;
    let mut primary = Server::fresh();
    let mut replica = Server::replica_of(&primary, resil_harness::Options::default());
    wait_until_counted(&primary, &replica);
    let proxy = Proxy::to(&primary).await;
    let client = options(&proxy.url()).connect().await.expect("there");
    let letters = ledger(&client, settings().replicas(1)).await;
    let soon = ClassChange::default().base(ms(100)).cap(ms(100)).retries(2);
    letters.configure(&LedgerChange::new().transient(soon)).await.expect("configured");
    let stop = CancellationToken::new();
    let task = tokio::spawn({
        let (letters, until) = (letters.clone(), stop.clone());
        async move {
            let handler = |message: Arc<TakenMessage>| async move {
                tokio::time::sleep(ms(30)).await;
                // Every fourth never succeeds.
                let number: u32 = message.id().trim_start_matches("shop/").parse().expect("a number");
                if number % 4 == 3 { Err(std::io::Error::other("no luck")) } else { Ok(()) }
            };
            letters.run_until(&until, |error: &std::io::Error| Settlement::of(error), handler).await
        }
    });
    for round in 0..ROUNDS {
        for number in 0..EACH {
            // Whatever it takes: from here on it is safe.
            fail(&letters, round * EACH + number).await;
        }
        primary.kill9();
        resil_harness::ok(&mut replica.connect(), &["REPLICAOF", "NO", "ONE"]);
        primary = replica;
        replica = Server::replica_of(&primary, resil_harness::Options::default());
        wait_for_sync(&primary, &replica);
        proxy.turn_to(&primary);
    }
    let standing = async |number: u32| letters.standing(&format!("shop/{number}")).await;
    for number in 0..ROUNDS * EACH {
        let end = if number % 4 == 3 { LetterState::Dead } else { LetterState::Done };
        eventually(&format!("order {number} has ended"), async || {
            let standing = standing(number).await;
            assert_ne!(standing, Ok(None), "order {number} is lost");
            standing == Ok(Some(end))
        })
        .await;
    }
    let report = end_loop(stop, task).await;
    println!("{report:?}");
    // What is dead is there once, and nothing else is.
    let info = letters.info().await.expect("there");
    assert_eq!((info.entries, info.dead), (u64::from(ROUNDS * EACH / 4), u64::from(ROUNDS * EACH / 4)), "{info:?}");
    client.shutdown(ms(5_000)).await;
}
