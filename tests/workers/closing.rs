//! What a RabbitMQ consumer must do before it closes, and that the worker does it: AMQP confirms no acknowledgement, and a channel keeps some of them back
//! from a quorum queue for a while. Those are lost when it closes.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use lapin::BasicProperties;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
    ConfirmSelectOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use resil::telemetry::Hooks;
use resil::worker::rabbit::{RabbitSettings, RabbitSource};
use resil::worker::{OutgoingMessage, WorkError, WorkVerdict, WorkerReport, WorkerSettings};
use tokio::sync::Semaphore;

use crate::places::{AtRabbit, Place};
use crate::scene::{LedgerServer, RunningWorker, Seen, eventually};

const BOUND: Duration = Duration::from_secs(40);
const MESSAGES: u16 = 300;

/// What the worker declares.
async fn queue_with(place: &AtRabbit, messages: u16) -> lapin::Connection {
    let (connection, channel) = place.channel().await;
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(place.name.as_str().into(), durable, arguments).await.unwrap();
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    let mut confirms = Vec::new();
    for number in 0..messages {
        let properties = BasicProperties::default().with_message_id(format!("m{number}").into());
        let (queue, options) = (place.name.as_str(), BasicPublishOptions::default());
        confirms.push(channel.basic_publish("".into(), queue.into(), options, b"x", properties).await.unwrap());
    }
    for confirm in confirms {
        confirm.await.unwrap();
    }
    connection
}

/// Acknowledges every message by itself, and closes. How many are left.
async fn left_by_a_consumer(place: &AtRabbit, is_careful: bool) -> usize {
    let filling = queue_with(place, MESSAGES).await;
    let (connection, channel) = place.channel().await;
    channel.basic_qos(MESSAGES, BasicQosOptions::default()).await.unwrap();
    let (options, table) = (BasicConsumeOptions::default(), FieldTable::default());
    let mut consumer = channel.basic_consume(place.name.as_str().into(), "own".into(), options, table).await.unwrap();
    let mut deliveries = Vec::new();
    for _ in 0..MESSAGES {
        deliveries.push(consumer.next().await.unwrap().unwrap());
    }
    for delivery in deliveries {
        delivery.acker.ack(BasicAckOptions::default()).await.unwrap();
    }
    if is_careful {
        channel.basic_cancel("own".into(), BasicCancelOptions::default()).await.unwrap();
        for _ in 0..2 {
            channel.basic_qos(MESSAGES, BasicQosOptions::default()).await.unwrap();
        }
    }
    connection.close(200, "done".into()).await.unwrap();
    let left = place.left().await;
    let (_emptying, channel) = place.channel().await;
    channel.queue_purge(place.name.as_str().into(), Default::default()).await.unwrap();
    filling.close(200, "done".into()).await.unwrap();
    left
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_cancels_and_asks_twice_loses_no_acknowledgement() {
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    let (mut careless, mut careful) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        careless.push(left_by_a_consumer(&place, false).await);
        careful.push(left_by_a_consumer(&place, true).await);
    }
    println!("{MESSAGES} acknowledged one by one: {careless:?} left by a close at once, {careful:?} after a cancel");
    assert_eq!(careful, [0; 10]);
}

/// Handlers that all end at once, in the last moment of a drain; every other message goes back, which is a frame of its own.
async fn left_by_a_worker(place: &AtRabbit, ledger: &LedgerServer) -> (u64, u64) {
    let filling = queue_with(place, MESSAGES).await;
    let client = ledger.client().await;
    let worker = client.worker(&place.name, WorkerSettings::new().workers(u32::from(MESSAGES)).retries(false)).unwrap();
    let source = RabbitSource::new(&client, place.settings.clone().prefetch(MESSAGES).workers(1)).unwrap();
    let (began, gate, running) = (Seen::default(), Arc::new(Semaphore::new(0)), worker.clone());
    let (begun, waiting) = (began.clone(), Arc::clone(&gate));
    let running = RunningWorker::new(&worker, async move {
        running
            .run(source, move |message| {
                begun.add(message.id());
                let (gate, goes_back) = (Arc::clone(&waiting), message.id().ends_with(['0', '2', '4', '6', '8']));
                async move {
                    drop(gate.acquire().await);
                    match goes_back {
                        true => Err(WorkError::new(WorkVerdict::GiveBack(Duration::ZERO), "not now")),
                        false => Ok(()),
                    }
                }
            })
            .await
    });
    began.reaches(usize::from(MESSAGES), BOUND).await;
    worker.stopper().cancel();
    eventually("it drains", BOUND, || async { !worker.health().is_ready }).await;
    // The source is closed meanwhile.
    tokio::time::sleep(Duration::from_millis(100)).await;
    gate.close();
    let report = running.stop().await;
    assert_eq!(report.done + report.given_back, u64::from(MESSAGES), "{report:?}");
    let (looking, channel) = place.channel().await;
    let (passive, name) =
        (QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() }, place.name.as_str());
    let look = || async { channel.queue_declare(name.into(), passive, FieldTable::default()).await.unwrap() };
    // What a channel had goes back with its consumer.
    eventually("the consumer is gone", BOUND, || async { look().await.consumer_count() == 0 }).await;
    let left = look().await.message_count();
    channel.queue_purge(name.into(), Default::default()).await.unwrap();
    looking.close(200, "done".into()).await.unwrap();
    filling.close(200, "done".into()).await.unwrap();
    (report.given_back, u64::from(left))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_draining_worker_acknowledges_reaches_the_queue() {
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    let mut all = Vec::new();
    for _ in 0..10 {
        all.push(left_by_a_worker(&place, &ledger).await);
    }
    println!("given back and left: {all:?}");
    for (given_back, left) in all {
        assert_eq!(left, given_back, "an acknowledgement was lost");
    }
}

/// A worker whose handlers wait until `gate` is closed.
async fn waiting_worker(
    ledger: &LedgerServer,
    settings: RabbitSettings,
    began: &Seen,
    gate: &Arc<Semaphore>,
) -> RunningWorker {
    let client = ledger.client().await;
    let worker = client.worker(&settings.queue, settings.worker_settings().retries(false)).unwrap();
    let (source, running) = (RabbitSource::new(&client, settings).unwrap(), worker.clone());
    let (begun, gate) = (began.clone(), Arc::clone(gate));
    let running = RunningWorker::new(&worker, async move {
        running
            .run(source, move |message| {
                begun.add(message.id());
                let gate = Arc::clone(&gate);
                async move {
                    drop(gate.acquire().await);
                    Ok(())
                }
            })
            .await
    });
    eventually("it consumes", BOUND, || async {
        running.worker.health().source.is_some_and(|source| source.is_connected)
    })
    .await;
    running
}

/// Collects what is said of the broker of `place` while the result is kept.
fn notices_of(place: &AtRabbit) -> (Seen, impl Drop + use<>) {
    let (notices, address) = (Seen::default(), format!("127.0.0.1:{}", place.relay.port()));
    let reported = notices.clone();
    let hooks = Hooks::new().on_away(move |at, reason| {
        if at == address {
            reported.add(reason);
        }
    });
    (notices, hooks.install())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordinary_stop_says_nothing_of_a_broker() {
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    let (notices, _kept) = notices_of(&place);
    for _ in 0..5 {
        let (began, gate) = (Seen::default(), Arc::new(Semaphore::new(1)));
        let running = waiting_worker(&ledger, place.settings.clone(), &began, &gate).await;
        place.send(OutgoingMessage::new("x")).await;
        began.reaches(1, BOUND).await;
        let report = running.stop().await;
        assert_eq!((report.done, report.unsettled), (1, 0), "{report:?}");
    }
    assert_eq!(notices.all(), Vec::<String>::new(), "nothing was away");
}

async fn consumers(connection: &lapin::Connection, queue: &str) -> u32 {
    let channel = connection.create_channel().await.unwrap();
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    // A worker that begins has not declared it yet.
    let found = channel.queue_declare(queue.into(), passive, FieldTable::default()).await;
    found.map_or(0, |found| found.consumer_count())
}

/// Handlers that end some time after their worker was asked to stop. What became of their messages, and how many are left.
async fn drained(place: &AtRabbit, ledger: &LedgerServer, disturb: impl FnOnce()) -> (WorkerReport, usize) {
    const HANDLERS: u16 = 50;
    let filled = queue_with(place, HANDLERS).await;
    let (began, gate) = (Seen::default(), Arc::new(Semaphore::new(0)));
    let running = waiting_worker(ledger, place.settings.clone().prefetch(1).workers(HANDLERS), &began, &gate).await;
    began.reaches(usize::from(HANDLERS), BOUND).await;
    eventually("what was given up is consumed", BOUND, || async {
        consumers(&filled, &format!("{}.dead", place.name)).await == 1
    })
    .await;
    disturb();
    running.worker.stopper().cancel();
    // Long enough for one that would connect again.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    gate.close();
    let report = running.stop().await;
    place.relay.open();
    (report, place.left().await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_drains_is_settled_though_its_broker_is_far_away() {
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    for round in 1..=4 {
        let (report, left) = drained(&place, &ledger, || place.relay.delay(Duration::from_millis(100))).await;
        assert_eq!((report.done, report.unsettled, left), (50, 0, 0), "round {round}: {report:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_settles_despite_another_silent_connection() {
    let ledger = LedgerServer::start();
    for round in 1..=2 {
        let place = AtRabbit::new(&ledger).await;
        let (notices, _kept) = notices_of(&place);
        // That of what the broker gave up is the last one that a worker makes.
        let (report, left) = drained(&place, &ledger, || place.relay.freeze_the_latest()).await;
        assert_eq!((report.done, report.unsettled, left), (50, 0, 0), "round {round}: {report:?}");
        assert_eq!(notices.all(), Vec::<String>::new(), "nothing was away");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draining_worker_takes_nothing_the_broker_gave_up() {
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    let (connection, channel) = place.channel().await;
    for is_single in [true, false] {
        let mut settings = place.settings.clone().single_active(is_single);
        settings.queue = format!("{}-{is_single}", place.name);
        let dead = format!("{}.dead", settings.queue);
        let consumers = || consumers(&connection, &dead);
        let (began, gate) = (Seen::default(), Arc::new(Semaphore::new(0)));
        let running = waiting_worker(&ledger, settings.clone(), &began, &gate).await;
        let name = settings.queue.as_str();
        channel.basic_publish("".into(), name.into(), Default::default(), b"x", Default::default()).await.unwrap();
        began.reaches(1, BOUND).await;
        eventually("what was given up is consumed", BOUND, || async { consumers().await == 1 }).await;
        running.worker.stopper().cancel();
        eventually("it is consumed no more", BOUND, || async { consumers().await == 0 }).await;
        for _ in 0..40 {
            tokio::time::sleep(Duration::from_millis(25)).await;
            assert_eq!(consumers().await, 0, "single_active: {is_single}");
        }
        gate.close();
        assert_eq!(running.stop().await.done, 1);
    }
}
