//! Who believes in a lock, and when: judged by an observer that knows only what the believers wrote down.
//!
//! Two clients, as two processes would be, ask for the same unbound lock on a server that forgets nothing it has reported. It is
//! killed and restarted, and connections are cut. Each grant is written down: its fence, when it was handed over, until
//! when it was believed. No two intervals may meet, and later ones have higher fences.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use resil::lock::LockSettings;
use resil::{Code, Status};
use resil_harness::ok;
use tokio::task::JoinSet;

use crate::proxy::Proxy;
use crate::scene::{all_end, becomes, careful, client, eventually, ms, options, timed};

#[derive(Debug, Clone, Copy)]
struct Belief {
    fence: u64,
    since: Instant,
    until: Instant,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beliefs_never_meet_and_fences_rise_despite_kills() {
    let mut server = careful();
    let clients = [client(&server).await, client(&server).await];
    let (journal, over) = (Arc::new(Mutex::new(Vec::<Belief>::new())), Arc::new(AtomicBool::new(false)));
    let mut tasks = JoinSet::new();
    for (number, client) in clients.iter().enumerate() {
        for task in 0..2_u64 {
            let (lock, journal, over) = (
                client.lock("orders", LockSettings::new().unbound().lease(ms(500))).unwrap(),
                Arc::clone(&journal),
                Arc::clone(&over),
            );
            tasks.spawn(async move {
                for round in 0_u64.. {
                    if over.load(SeqCst) {
                        return;
                    }
                    let Ok(guard) = lock.acquire_within(ms(1_000)).await else { continue };
                    let (since, fence) = (Instant::now(), guard.fence().expect("a lock that is held"));
                    // Some keep it for a moment, some for longer than one lease, some until they learn it is lost.
                    let hold = match round % 8 {
                        7 => ms(1_500),
                        3 => ms(700),
                        _ => ms(2 + 3 * task + number as u64),
                    };
                    let mut until = since;
                    while since.elapsed() < hold {
                        let now = Instant::now();
                        if !guard.is_held() {
                            break;
                        }
                        // The moment before it was asked: it was believed then.
                        until = now;
                        tokio::time::sleep(Duration::from_micros(500)).await;
                    }
                    journal.lock().push(Belief { fence, since, until });
                    drop(guard);
                }
            });
        }
    }
    for round in 0..4 {
        tokio::time::sleep(ms(600)).await;
        if round % 2 == 0 {
            server.kill9();
            // Once for longer than the lease, once as fast as it can.
            tokio::time::sleep(ms(400 * round)).await;
            server.start_again();
        } else {
            ok(&mut server.connect(), &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        }
    }
    for client in &clients {
        becomes(client, Status::Healthy).await;
    }
    let before = journal.lock().len();
    eventually("it goes on", async || journal.lock().len() > before + 20).await;
    over.store(true, SeqCst);
    all_end(tasks).await;
    let mut beliefs = journal.lock().clone();
    beliefs.sort_by_key(|belief| belief.fence);
    println!("{} grants judged", beliefs.len());
    for pair in beliefs.windows(2) {
        assert!(pair[0].fence < pair[1].fence, "a fence was given twice: {pair:?}");
        assert!(pair[0].until < pair[1].since, "two believed at once: {pair:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_off_holder_stops_believing_before_the_next() {
    let server = careful();
    let proxy = Proxy::to(&server).await;
    let (holder, other) = (options(&proxy.url()).connect().await.expect("there"), client(&server).await);
    let guard = holder
        .lock("orders", LockSettings::new().unbound().lease(ms(1_500)))
        .unwrap()
        .try_acquire()
        .await
        .expect("free");
    let held = guard.held();
    proxy.close();
    let deadline = Instant::now() + guard.remaining();
    let next = tokio::spawn(async move {
        let next = other
            .lock("orders", LockSettings::new().unbound())
            .unwrap()
            .acquire_within(ms(10_000))
            .await
            .expect("the lease ends");
        // The holder's own view, at the moment the next one has it.
        (held.is_held(), Instant::now(), next)
    });
    timed("the loss", guard.lost().cancelled()).await;
    let reported = Instant::now();
    let (was_believed, granted, next) = next.await.expect("no panic");
    assert!(!was_believed, "two believe");
    assert!(reported < deadline + ms(100), "reported {:?} late", reported - deadline);
    assert!(granted > deadline, "the next one came early");
    assert!(next.fence() > guard.fence());
    assert_eq!(guard.release().await.map(drop).expect_err("it was lost").code(), Code::LockLost);
}
