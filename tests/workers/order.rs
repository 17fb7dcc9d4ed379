//! Order where it is promised, also across an orderly restart.

use std::time::Duration;

use redis::Value;
use resil::worker::rabbit::{RabbitPublisher, RabbitSource};
use resil::worker::streams::{StreamPublisher, StreamSettings, StreamSource};
use resil::worker::{OutgoingMessage, Source, WorkerSettings};
use resil_harness::ok;

use crate::places::{AtRabbit, Place};
use crate::scene::{LedgerServer, RunningWorker, Seen, fresh_name};

const BOUND: Duration = Duration::from_secs(40);

/// A worker for one message at a time, which takes a moment for each.
async fn one_by_one(ledger: &LedgerServer, name: &str, source: impl Source, seen: &Seen) -> RunningWorker {
    let worker = ledger.client().await.worker(name, WorkerSettings::new().workers(1)).unwrap();
    let (running, seen) = (worker.clone(), seen.clone());
    RunningWorker::new(&worker, async move {
        running
            .run(source, move |message| {
                seen.add(String::from_utf8_lossy(message.payload()));
                async {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    Ok(())
                }
            })
            .await
    })
}

fn in_order(count: u32) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_went_back_to_a_stream_comes_first() {
    const COUNT: u32 = 600;
    let ledger = LedgerServer::start();
    let (name, direct) = (fresh_name("order"), ledger.direct().await);
    let publisher = StreamPublisher::new(&direct, &name, None).unwrap();
    for number in 0..COUNT {
        publisher.publish(&OutgoingMessage::new(number.to_string())).await.unwrap();
    }
    // A consumer fetched two thirds, and gave them back.
    let mut connection = ledger.server.connect();
    let mut ask = |line: String| ok(&mut connection, &line.split(' ').collect::<Vec<_>>());
    ask(format!("XGROUP CREATE {name} resil 0"));
    let read = ask(format!("XREADGROUP GROUP resil gone COUNT 400 STREAMS {name} >"));
    for id in ids_of(&read) {
        ask(format!("XCLAIM {name} resil resil-returned 0 {id} IDLE 30000 RETRYCOUNT 0 JUSTID"));
    }
    let seen = Seen::default();
    let source = StreamSource::new(&direct, StreamSettings::new(&name)).unwrap();
    let running = one_by_one(&ledger, &name, source, &seen).await;
    seen.reaches(COUNT as usize, BOUND).await;
    running.stop().await;
    assert_eq!(seen.all(), in_order(COUNT));
}

fn ids_of(read: &Value) -> Vec<String> {
    let Value::Array(streams) = read else { panic!("{read:?}") };
    let Some(Value::Array(stream)) = streams.first() else { panic!("{read:?}") };
    let Some(Value::Array(entries)) = stream.get(1) else { panic!("{read:?}") };
    let ids = entries.iter().map(|entry| match entry {
        Value::Array(entry) => redis::from_redis_value::<String>(entry[0].clone()).unwrap(),
        other => panic!("{other:?}"),
    });
    ids.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_active_consumer_hands_its_queue_over_in_order() {
    const COUNT: u32 = 900;
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    let mut settings = place.settings.clone().single_active(true).prefetch(50);
    settings.queue = fresh_name("single");
    let direct = ledger.direct().await;
    let source = || RabbitSource::new(&direct, settings.clone()).unwrap();
    let seen = Seen::default();
    let mut running = one_by_one(&ledger, &settings.queue, source(), &seen).await;
    let publisher = RabbitPublisher::new(&direct, &settings).unwrap();
    // The queue is there once the consumer has declared it.
    crate::scene::eventually("it consumes", BOUND, || async {
        running.worker.health().source.is_some_and(|source| source.is_connected)
    })
    .await;
    for number in 0..COUNT {
        let message = OutgoingMessage::new(number.to_string()).id(format!("m{number}"));
        publisher.publish("", &settings.queue, &message).await.unwrap();
    }
    // One stands by while another stops, three times.
    for handed_over in 1..=3 {
        let next = one_by_one(&ledger, &settings.queue, source(), &seen).await;
        seen.reaches(handed_over * 200, BOUND).await;
        running.stop().await;
        running = next;
    }
    seen.reaches(COUNT as usize, BOUND).await;
    running.stop().await;
    assert_eq!(seen.all(), in_order(COUNT));
}
