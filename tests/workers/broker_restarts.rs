//! A broker of their own, which is killed and started again. It is killed when it has written the name of the queue to its disk: RabbitMQ 3.10.8
//! forgets a quorum queue that was declared a moment before it crashed, with any client.

use std::time::{Duration, Instant};

use resil::worker::rabbit::RabbitPublisher;
use resil::worker::{OutgoingMessage, WorkerSettings};
use resil_harness::RabbitMq;

use crate::places::{AtRabbit, Place};
use crate::scene::{LedgerServer, RunningWorker, Seen, eventually};

const BOUND: Duration = Duration::from_secs(60);
/// How many are handled before the broker dies.
const HANDLED_BEFORE: usize = 3;
/// After the broker replies again.
const RECOVERY: Duration = Duration::from_secs(15);

/// Once they are declared, and a crash forgets none of them.
async fn registered(broker: RabbitMq, queues: [String; 2]) -> RabbitMq {
    let wait = move || {
        queues.iter().for_each(|queue| broker.wait_until_registered(queue));
        broker
    };
    tokio::task::spawn_blocking(wait).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_and_producers_outlive_the_broker_and_lose_nothing() {
    let broker = tokio::task::spawn_blocking(RabbitMq::start).await.unwrap();
    let ledger = LedgerServer::start();
    let place = AtRabbit::of(&ledger, &broker).await;
    let (client, seen) = (ledger.client().await, Seen::default());
    let worker = client.worker(&place.name, WorkerSettings::new().workers(1)).unwrap();
    let (source, running, saw) = (place.source(&client), worker.clone(), seen.clone());
    let (kill, killed) = tokio::sync::watch::channel(false);
    let running = RunningWorker::new(&worker, async move {
        running
            .run(source, move |message| {
                saw.add(message.id());
                let (must_wait, mut killed) = (saw.count() > HANDLED_BEFORE, killed.clone());
                async move {
                    if must_wait {
                        killed.wait_for(|is_killed| *is_killed).await?;
                    }
                    Ok(())
                }
            })
            .await
    });
    let dead = format!("{}.dead", place.name);
    let mut broker = registered(broker, [place.name.clone(), dead]).await;
    for id in 0..30 {
        place.send(OutgoingMessage::new("x").id(format!("{id}"))).await;
    }
    let idle = RabbitPublisher::new(&client, &place.settings).unwrap();
    eventually("it is connected", BOUND, || async { idle.health().is_connected }).await;
    // One more is being handled, and others were fetched.
    seen.reaches(HANDLED_BEFORE + 1, BOUND).await;
    let broker = tokio::task::spawn_blocking(move || {
        broker.kill();
        broker
    })
    .await
    .unwrap();
    kill.send(true).unwrap();
    eventually("both know", BOUND, || async {
        !idle.health().is_connected && worker.health().source.is_some_and(|source| !source.is_connected)
    })
    .await;
    let health = worker.health();
    assert!(health.is_live && health.is_ready, "nothing that it must drain makes it unready: {health:?}");
    let broker = tokio::task::spawn_blocking(move || {
        let mut broker = broker;
        broker.restart();
        broker
    })
    .await
    .unwrap();
    let since = Instant::now();
    eventually("the producer is ready without traffic", RECOVERY, || async { idle.health().is_connected }).await;
    println!("the producer is ready {:?} after the broker", since.elapsed());
    eventually("the consumer is connected", RECOVERY, || async {
        worker.health().source.is_some_and(|source| source.is_connected)
    })
    .await;
    println!("the consumer is connected {:?} after the broker", since.elapsed());
    eventually("every message was handled", BOUND, || async {
        let all = seen.all();
        (0..30).all(|id| all.contains(&format!("{}/{id}", place.name)))
    })
    .await;
    println!("every message was handled {:?} after the broker", since.elapsed());
    running.stop().await;
    drop(broker);
}
