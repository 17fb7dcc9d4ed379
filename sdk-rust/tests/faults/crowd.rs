//! Thousands of tasks on one thing need a handful of connections. Locks have their ten thousand in `lock_server.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

use bytes::Bytes;
use resil_harness::Server;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::scene::{BOUND, all_end, connections, eventually, ms, options, waiters};

use resil::cache::CacheSettings;
use resil::shared_bulkhead::SharedBulkheadSettings;

/// The shared connection, one that waits, and one to spare, for each of two processes.
const HANDFUL: usize = 6;

async fn patient(server: &Server) -> resil::Client {
    options(&server.url()).command_timeout(ms(5_000)).connect().await.expect("there")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_callers_over_two_processes_are_one_load() {
    let server = Server::fresh();
    let (loads, gate) = (Arc::new(AtomicU32::new(0)), Arc::new(Semaphore::new(0)));
    let mut tasks = JoinSet::new();
    let mut clients = Vec::new();
    for _ in 0..2 {
        let client = patient(&server).await;
        let cached = client.cached("user", CacheSettings::new().load_timeout(BOUND)).expect("valid");
        for _ in 0..5_000 {
            let (cached, loads, gate) = (cached.clone(), Arc::clone(&loads), Arc::clone(&gate));
            tasks.spawn(async move {
                let loader = move |_| async move {
                    loads.fetch_add(1, SeqCst);
                    drop(gate.acquire().await);
                    Ok::<_, String>(Some(Bytes::from("Ada")))
                };
                cached.get("42", loader).await.expect("loaded").into_value().expect("found")
            });
        }
        clients.push(client);
    }
    eventually("one loads and the other process waits", async || loads.load(SeqCst) == 1 && waiters(&server) == 1)
        .await;
    let most = connections(&server).len();
    let begun = Instant::now();
    gate.add_permits(1);
    let values = all_end(tasks).await;
    println!("10,000 callers served in {:?} over {most} connections", begun.elapsed());
    assert!(values.len() == 10_000 && values.iter().all(|value| value == "Ada"));
    assert_eq!(loads.load(SeqCst), 1);
    assert!(most <= HANDFUL && connections(&server).len() <= HANDFUL, "{most}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_tasks_share_ten_permits_over_two_processes() {
    let server = Server::fresh();
    let (inside, most_inside) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (served, mut most) = (Arc::new(AtomicUsize::new(0)), 0);
    let mut tasks = JoinSet::new();
    let clients = [patient(&server).await, patient(&server).await];
    let begun = Instant::now();
    for number in 0..2_000 {
        let bulkhead = clients[number % 2]
            .shared_bulkhead("reports", SharedBulkheadSettings::new(10).max_queue(2_000).max_wait(2 * BOUND))
            .unwrap();
        let (inside, most_inside, served) = (Arc::clone(&inside), Arc::clone(&most_inside), Arc::clone(&served));
        tasks.spawn(async move {
            let guard = bulkhead.enter().await.expect("entered");
            let now_inside = inside.fetch_add(1, SeqCst) + 1;
            most_inside.fetch_max(now_inside, SeqCst);
            tokio::time::sleep(ms(2)).await;
            inside.fetch_sub(1, SeqCst);
            guard.leave().await.expect("left");
            served.fetch_add(1, SeqCst);
        });
    }
    while served.load(SeqCst) < 2_000 && begun.elapsed() < BOUND {
        most = most.max(connections(&server).len());
        tokio::time::sleep(ms(50)).await;
    }
    all_end(tasks).await;
    let most_inside = most_inside.load(SeqCst);
    println!("2,000 tasks in {:?}, at most {most_inside} inside, {most} connections", begun.elapsed());
    assert!(served.load(SeqCst) == 2_000 && most_inside <= 10);
    assert!(most_inside > 5, "the places are used: {most_inside}");
    assert!(most <= HANDFUL, "{most} connections");
    let info =
        clients[0].shared_bulkhead("reports", SharedBulkheadSettings::new(10)).unwrap().info().await.expect("info");
    assert_eq!((info.holders_total, info.waiters_total), (0, 0));
}
