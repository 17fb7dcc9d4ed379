//! The loop on a ledger in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{LedgerSource, Upcasters, WorkError, WorkerSettings};
use crate::client::Client;
use crate::dead_letters::{DeadLettersSettings, FailureNote, Letter, LetterState};

async fn client() -> Client {
    crate::connect("memory://").await.unwrap()
}

async fn with_letter(client: &Client, letter: Letter) {
    let ledger = client.dead_letters("orders", DeadLettersSettings::new()).unwrap();
    ledger.fail(&letter, "before").await.unwrap();
}

#[tokio::test]
async fn a_panic_fails_its_message_alone() {
    let client = client().await;
    for id in ["a", "b"] {
        with_letter(&client, Letter::of("shop", id).payload(id)).await;
    }
    let worker = client.worker("orders", WorkerSettings::new()).unwrap();
    let stop = worker.stopper();
    let source = LedgerSource::new(&client, "orders").unwrap();
    // Which of the two is due first is a matter of jitter.
    let crashed = CancellationToken::new();
    let report = worker.run(source, move |message| {
        let (stop, crashed) = (stop.clone(), crashed.clone());
        async move {
            if message.id() == "shop/a" {
                crashed.cancel();
                panic!("boom");
            }
            crashed.cancelled().await;
            stop.cancel();
            Ok(())
        }
    });
    let report = report.await.unwrap();
    assert_eq!(report.done, 1);
    assert!(report.retried >= 1, "{report:?}");
    let failed = worker.ledger().get("shop/a").await.unwrap().unwrap();
    assert_eq!(failed.last_error.as_deref(), Some("the handler crashed: boom"));
}

#[test]
fn pauses_are_spread_from_nothing_to_their_base() {
    let random = crate::policy::Random::seeded(7);
    let mut all: Vec<Vec<Duration>> = vec![Vec::new(); 6];
    for _ in 0..2_000 {
        let mut delays = super::RECONNECT.delays();
        all.iter_mut().for_each(|pauses| pauses.push(delays.next(&random)));
    }
    for (pauses, base_ms) in all.iter().zip([500, 1_000, 2_000, 4_000, 5_000, 5_000]) {
        let base = Duration::from_millis(base_ms);
        let (least, most) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
        assert!(*most <= base && *most > base * 9 / 10, "{most:?} of {base:?}");
        assert!(*least < base / 10, "{least:?} of {base:?}");
    }
}

#[tokio::test]
async fn a_dropped_message_is_counted_and_notified_of() {
    let client = client().await;
    with_letter(&client, Letter::of("shop", "a").payload("old")).await;
    let worker = client.worker("orders", WorkerSettings::new()).unwrap();
    let reported = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let hear = Arc::clone(&reported);
    let hooks = crate::telemetry::Hooks::new()
        .only("orders")
        .on_drop(move |name, id, reason| {
            // Other tests of this process drop messages, too.
            if reason == "too old to matter" {
                hear.lock().push(format!("{name} {id}: {reason}"));
            }
        })
        .install();
    let stop = worker.stopper();
    let source = LedgerSource::new(&client, "orders").unwrap();
    let report = worker.run(source, move |_| {
        stop.cancel();
        async { Err(WorkError::drop_message("too old to matter")) }
    });
    assert_eq!(report.await.unwrap().dropped, 1);
    drop(hooks);
    assert_eq!(*reported.lock(), ["orders shop/a: too old to matter"]);
}

#[tokio::test]
async fn a_handler_past_its_deadline_is_dead() {
    let client = client().await;
    with_letter(&client, Letter::of("shop", "a").payload("x")).await;
    let worker = client.worker("orders", WorkerSettings::new().deadline(Duration::from_millis(50))).unwrap();
    let stop = worker.stopper();
    let source = LedgerSource::new(&client, "orders").unwrap();
    let report = worker.run(source, move |message| {
        let stop = stop.clone();
        async move {
            assert!(message.time_left() <= Duration::from_millis(50));
            tokio::spawn({
                let message = Arc::clone(&message);
                async move {
                    message.cancelled().cancelled().await;
                    stop.cancel();
                }
            });
            std::future::pending::<()>().await;
            Ok(())
        }
    });
    assert_eq!(report.await.unwrap().dead, 1);
    assert_eq!(worker.ledger().standing("shop/a").await.unwrap(), Some(LetterState::Dead));
}

#[tokio::test]
async fn work_at_the_end_of_a_drain_returns_uncounted() {
    let client = client().await;
    with_letter(&client, Letter::of("shop", "a").payload("x")).await;
    let worker = client.worker("orders", WorkerSettings::new().drain(Duration::from_millis(50))).unwrap();
    let stop = worker.stopper();
    let source = LedgerSource::new(&client, "orders").unwrap();
    let report = worker.run(source, move |_| {
        stop.cancel();
        std::future::pending()
    });
    assert_eq!(report.await.unwrap().given_back, 1);
    let letter = worker.ledger().get("shop/a").await.unwrap().unwrap();
    assert_eq!((letter.state, letter.attempt), (LetterState::Waiting, 1));
}

#[tokio::test]
async fn a_handler_that_the_drain_ended_is_not_counted() {
    let client = client().await;
    with_letter(&client, Letter::of("shop", "a").payload("x")).await;
    let worker = client.worker("orders", WorkerSettings::new().drain(Duration::from_millis(50))).unwrap();
    let stop = worker.stopper();
    let source = LedgerSource::new(&client, "orders").unwrap();
    let report = worker.run(source, move |message| {
        stop.cancel();
        async move {
            message.cancelled().cancelled().await;
            Err(WorkError::retry("interrupted"))
        }
    });
    assert_eq!(report.await.unwrap().given_back, 1);
    let letter = worker.ledger().get("shop/a").await.unwrap().unwrap();
    assert_eq!((letter.state, letter.attempt), (LetterState::Waiting, 1));
}

#[tokio::test]
async fn a_shutdown_of_the_client_ends_the_worker() {
    let client = client().await;
    with_letter(&client, Letter::of("shop", "a").payload("x")).await;
    let worker = client.worker("orders", WorkerSettings::new()).unwrap();
    let source = LedgerSource::new(&client, "orders").unwrap();
    let closing = client.clone();
    let report = worker.run(source, move |_| {
        let client = closing.clone();
        async move {
            tokio::spawn(async move { client.shutdown(Duration::from_secs(5)).await });
            tokio::time::sleep(Duration::from_millis(200)).await;
            Ok(())
        }
    });
    assert_eq!(report.await.unwrap().done, 1);
    assert!(!worker.health().is_live);
}

#[tokio::test]
async fn a_worker_that_was_asked_to_wait_takes_nothing() {
    let client = client().await;
    for id in ["a", "b", "c"] {
        with_letter(&client, Letter::of("shop", id).payload(id)).await;
    }
    let worker = client.worker("orders", WorkerSettings::new().workers(1)).unwrap();
    let (calls, stop) = (Arc::new(AtomicU32::new(0)), worker.stopper());
    let source = LedgerSource::new(&client, "orders").unwrap();
    let counted = Arc::clone(&calls);
    let running = worker.clone();
    let task = tokio::spawn(async move {
        running
            .run(source, move |_| {
                counted.fetch_add(1, Ordering::Relaxed);
                async { Err(WorkError::not_counted(Some(Duration::from_secs(60)), "the circuit is open")) }
            })
            .await
    });
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    let health = worker.health();
    assert!(health.is_paused && health.is_live && health.is_ready, "{health:?}");
    stop.cancel();
    assert_eq!(task.await.unwrap().unwrap().retried, 1);
}

#[tokio::test]
async fn nothing_that_waited_for_a_place_begins_in_a_pause() {
    let client = client().await;
    // Two ledgers that share one place: the second one is that of the worker.
    for name in ["first", "second"] {
        let ledger = client.dead_letters(name, DeadLettersSettings::new()).unwrap();
        let due_at_once = FailureNote::new("before").not_counted();
        ledger.fail(&Letter::of("shop", name).payload("x"), due_at_once).await.unwrap();
    }
    let worker = client.worker("second", WorkerSettings::new().workers(1)).unwrap();
    let (calls, stop) = (Arc::new(AtomicU32::new(0)), worker.stopper());
    let (source, counted) = (LedgerSource::new(&client, "first").unwrap(), Arc::clone(&calls));
    let running = worker.clone();
    let task = tokio::spawn(async move {
        running
            .run(source, move |_| {
                counted.fetch_add(1, Ordering::Relaxed);
                async {
                    // Long enough for the other to be due, and to wait.
                    tokio::time::sleep(Duration::from_millis(1_500)).await;
                    Err(WorkError::not_counted(Some(Duration::from_secs(60)), "the circuit is open"))
                }
            })
            .await
    });
    tokio::time::sleep(Duration::from_millis(4_000)).await;
    assert_eq!((calls.load(Ordering::Relaxed), worker.health().is_paused), (1, true));
    stop.cancel();
    let report = task.await.unwrap().unwrap();
    assert_eq!((report.retried, report.given_back), (1, 1), "{report:?}");
}

#[tokio::test]
async fn a_dropped_message_is_gone_and_counted() {
    let client = client().await;
    with_letter(&client, Letter::of("shop", "a").payload("x")).await;
    let worker = client.worker("orders", WorkerSettings::new()).unwrap();
    let stop = worker.stopper();
    let source = LedgerSource::new(&client, "orders").unwrap();
    let report = worker.run(source, move |_| {
        stop.cancel();
        async { Err(WorkError::drop_message("of no use")) }
    });
    assert_eq!(report.await.unwrap().dropped, 1);
    assert_eq!(worker.ledger().standing("shop/a").await.unwrap(), Some(LetterState::Done));
}

#[tokio::test]
async fn a_newer_form_goes_back_and_older_ones_upgrade() {
    let client = client().await;
    with_letter(&client, Letter::of("shop", "new").payload("x").kind("order").schema(3)).await;
    with_letter(&client, Letter::of("shop", "old").payload("x").kind("order").schema(1)).await;
    let chain = Upcasters::new().step("order", 1, |_| Ok("y".into()));
    let worker = client.worker("orders", WorkerSettings::new()).unwrap().upcasters(chain);
    let stop = worker.stopper();
    let source = LedgerSource::new(&client, "orders").unwrap();
    let report = worker.run(source, move |message| {
        let stop = stop.clone();
        async move {
            assert_eq!((message.payload().as_ref(), message.schema()), (&b"y"[..], Some(1)));
            tokio::time::sleep(Duration::from_millis(600)).await;
            stop.cancel();
            Ok(())
        }
    });
    let report = report.await.unwrap();
    assert_eq!((report.done, report.given_back), (1, 1));
    let new = worker.ledger().get("shop/new").await.unwrap().unwrap();
    assert_eq!((new.attempt, new.payload.as_deref()), (1, Some(&b"x"[..])));
}

#[tokio::test]
async fn a_form_no_chain_reads_stops_the_worker() {
    let client = client().await;
    with_letter(&client, Letter::of("shop", "old").payload("x").kind("order").schema(1)).await;
    let chain = Upcasters::new().step("order", 2, Ok);
    let worker = client.worker("orders", WorkerSettings::new()).unwrap().upcasters(chain);
    let source = LedgerSource::new(&client, "orders").unwrap();
    let refused = worker.run(source, |_| async { Ok(()) }).await.unwrap_err();
    assert!(refused.to_string().contains("cannot read shop/old"), "{refused}");
}

#[tokio::test]
async fn one_worker_runs_once_at_a_time() {
    let client = client().await;
    let worker = client.worker("orders", WorkerSettings::new()).unwrap();
    let source = || LedgerSource::new(&client, "orders").unwrap();
    let running = tokio::spawn({
        let (worker, source) = (worker.clone(), source());
        async move { worker.run(source, |_| async { Ok(()) }).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(worker.run(source(), |_| async { Ok(()) }).await.is_err());
    worker.stopper().cancel();
    running.await.unwrap().unwrap();
}

#[test]
fn pauses_before_a_reconnect_double_with_full_jitter() {
    let nominal: Vec<u64> = (0..8).map(|n| super::RECONNECT.nominal(n).as_millis() as u64).collect();
    assert_eq!(nominal, [500, 1_000, 2_000, 4_000, 5_000, 5_000, 5_000, 5_000]);
    let random = crate::policy::Random::seeded(7);
    let mut delays = super::RECONNECT.delays();
    let drawn: Vec<Duration> = (0..8).map(|_| delays.next(&random)).collect();
    assert!(drawn.iter().zip(&nominal).all(|(delay, most)| delay.as_millis() as u64 <= *most), "{drawn:?}");
    assert!(drawn.iter().collect::<std::collections::HashSet<_>>().len() > 4, "they differ: {drawn:?}");
}

#[tokio::test]
async fn local_handlers_are_polled_where_the_worker_is() {
    use std::cell::RefCell;
    use std::rc::Rc;
    let client = client().await;
    for id in ["a", "b", "c"] {
        with_letter(&client, Letter::of("shop", id).payload(id)).await;
    }
    let settings = WorkerSettings::new().deadline(Duration::from_millis(200));
    let worker = client.worker("orders", settings).unwrap();
    let source = LedgerSource::new(&client, "orders").unwrap();
    // Neither of these can leave this thread.
    let (seen, dropped) = (Rc::new(RefCell::new(Vec::new())), Rc::new(RefCell::new(0)));
    struct Noted(Rc<RefCell<u32>>);
    impl Drop for Noted {
        fn drop(&mut self) {
            *self.0.borrow_mut() += 1;
        }
    }
    let report = worker.run_local(source, |message| {
        let (seen, noted, stop) = (Rc::clone(&seen), Noted(Rc::clone(&dropped)), worker.stopper());
        async move {
            seen.borrow_mut().push(message.id().to_owned());
            match message.id() {
                "shop/a" => panic!("boom"),
                "shop/b" => std::future::pending::<()>().await,
                _ => tokio::time::sleep(Duration::from_millis(400)).await,
            }
            drop(noted);
            stop.cancel();
            Ok(())
        }
    });
    let stop = worker.stopper();
    let stopping = async {
        for _ in 0..2_000 {
            let report = worker.health().report;
            if report.dead == 2 && report.retried >= 1 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        stop.cancel();
    };
    let (report, ()) = tokio::join!(report, stopping);
    let report = report.unwrap();
    assert_eq!((report.done, report.dead), (0, 2), "past their deadlines: {report:?}");
    assert!(report.retried >= 1, "{report:?}");
    assert_eq!(*dropped.borrow() as usize, seen.borrow().len(), "nothing of a handler is left");
    let failed = worker.ledger().get("shop/a").await.unwrap().unwrap();
    assert_eq!(failed.last_error.as_deref(), Some("the handler crashed: boom"));
}

#[tokio::test]
async fn what_a_handler_cancels_by_itself_counts() {
    let client = client().await;
    with_letter(&client, Letter::of("shop", "a").payload("x")).await;
    let worker = client.worker("orders", WorkerSettings::new()).unwrap();
    let stop = worker.stopper();
    let source = LedgerSource::new(&client, "orders").unwrap();
    let report = worker.run(source, move |_| {
        stop.cancel();
        async { Err(crate::Error::Cancelled.into()) }
    });
    let report = report.await.unwrap();
    assert_eq!((report.retried, report.given_back), (1, 0));
    assert_eq!(worker.ledger().get("shop/a").await.unwrap().unwrap().attempt, 2);
}

#[tokio::test]
async fn a_worker_that_was_stopped_says_that_it_runs_once() {
    let client = client().await;
    let worker = client.worker("orders", WorkerSettings::new()).unwrap();
    worker.stopper().cancel();
    let run = || worker.run(LedgerSource::new(&client, "orders").unwrap(), |_| async { Ok(()) });
    assert_eq!(run().await.unwrap().done, 0, "a stop that comes before it is a short run");
    let again = run().await.unwrap_err().to_string();
    assert!(again.contains("a worker runs once"), "{again}");
}

#[tokio::test]
async fn headers_that_are_too_many_keep_the_trace() {
    let client = client().await;
    let headers = (0..100).map(|number| (format!("h{number}"), "x".repeat(1_000)));
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned();
    let headers: super::Headers =
        headers.chain([("traceparent".to_owned(), trace.clone()), ("headerid".to_owned(), "42".to_owned())]).collect();
    let incoming = super::IncomingMessage { id: "shop/a".to_owned(), headers, ..Default::default() };
    let letter = super::letters::letter(&incoming);
    let kept = super::Headers::from_bytes(&letter.headers.unwrap());
    assert_eq!((kept.get("traceparent"), kept.get("HeaderID")), (Some(trace.as_str()), Some("42")));
    assert_eq!((kept.get("h1"), kept.get("x-resil-cut")), (None, Some("headers")));
    drop(client);
}

#[tokio::test]
async fn a_missing_header_id_is_the_same_at_every_attempt() {
    let client = client().await;
    with_letter(&client, Letter::of("shop", "a").payload("x")).await;
    let worker = client.worker("orders", WorkerSettings::new()).unwrap();
    let (stop, seen) = (worker.stopper(), Arc::new(parking_lot::Mutex::new(Vec::new())));
    let source = LedgerSource::new(&client, "orders").unwrap();
    let saw = Arc::clone(&seen);
    let report = worker.run(source, move |message| {
        saw.lock().push(message.header_id().to_owned());
        let is_last = saw.lock().len() == 2;
        if is_last {
            stop.cancel();
        }
        async move { if is_last { Ok(()) } else { Err(WorkError::retry("not yet")) } }
    });
    report.await.unwrap();
    let seen = seen.lock();
    assert_eq!(seen[0], seen[1]);
}

#[tokio::test]
async fn nothing_is_handled_beside_a_suspect() {
    let client = client().await;
    let ledger = client.dead_letters("orders", DeadLettersSettings::new()).unwrap();
    for id in 0..12 {
        let words = if id % 3 == 0 { "it was delivered 3 times before, and nobody settled it" } else { "before" };
        ledger.fail(&Letter::of("shop", &id.to_string()).payload("x"), words).await.unwrap();
    }
    let worker = client.worker("orders", WorkerSettings::new()).unwrap();
    let stop = worker.stopper();
    let (running, beside) = (Arc::new(AtomicU32::new(0)), Arc::new(parking_lot::Mutex::new(Vec::new())));
    let source = LedgerSource::new(&client, "orders").unwrap();
    let saw = Arc::clone(&beside);
    let report = worker.run(source, move |message| {
        let (running, saw, stop) = (Arc::clone(&running), Arc::clone(&saw), stop.clone());
        async move {
            let number: u32 = message.id().trim_start_matches("shop/").parse()?;
            let before = running.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(20)).await;
            let most = running.fetch_sub(1, Ordering::SeqCst).max(before + 1);
            saw.lock().push((number.is_multiple_of(3), most));
            if saw.lock().len() == 12 {
                stop.cancel();
            }
            Ok(())
        }
    });
    assert_eq!(tokio::time::timeout(Duration::from_secs(60), report).await.unwrap().unwrap().done, 12);
    let seen = beside.lock();
    assert_eq!(seen.iter().filter(|(is_suspect, _)| *is_suspect).count(), 4);
    assert!(seen.iter().all(|(is_suspect, most)| !is_suspect || *most == 1), "{seen:?}");
}
