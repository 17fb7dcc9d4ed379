//! What somebody might do to a source that runs: silence it, alter it, lock it, trim it, or send what nobody can read.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;
use resil::Client;
use resil::worker::postgres::{Outbox, OutboxSettings, OutboxSource, connect};
use resil::worker::rabbit::{RabbitPublisher, RabbitSource};
use resil::worker::streams::{StreamPublisher, StreamSettings, StreamSource};
use resil::worker::{OutgoingMessage, PublishError, Source, WorkError, WorkerSettings};
use resil_harness::{Postgres, RabbitMq, Relay, reply};
use tokio::sync::Semaphore;

use crate::places::{AtRabbit, Place, SILENT_FOR};
use crate::scene::{LedgerServer, RunningWorker, Seen, eventually, fresh_name, postgres, rabbit};

const BOUND: Duration = Duration::from_secs(40);

fn message(id: u32) -> OutgoingMessage {
    OutgoingMessage::new(format!("payload {id}")).id(format!("m{id}"))
}

/// A worker that notes what it begins, and may go on when `gate` lets it.
async fn gated(
    ledger: &LedgerServer,
    name: &str,
    source: impl Source,
    seen: &Seen,
    gate: &Arc<Semaphore>,
) -> RunningWorker {
    gated_with(ledger, name, WorkerSettings::new().workers(1), source, seen, gate).await
}

async fn gated_with(
    ledger: &LedgerServer,
    name: &str,
    settings: WorkerSettings,
    source: impl Source,
    seen: &Seen,
    gate: &Arc<Semaphore>,
) -> RunningWorker {
    let worker = ledger.client().await.worker(name, settings).unwrap();
    let (running, seen, gate) = (worker.clone(), seen.clone(), Arc::clone(gate));
    RunningWorker::new(&worker, async move {
        running
            .run(source, move |message| {
                seen.add(String::from_utf8_lossy(message.payload()));
                let gate = Arc::clone(&gate);
                async move {
                    let _passed = gate.acquire().await;
                    Ok(())
                }
            })
            .await
    })
}

fn open_gate() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(1_000))
}

async fn seeing(ledger: &LedgerServer, name: &str, source: impl Source, seen: &Seen) -> RunningWorker {
    gated(ledger, name, source, seen, &open_gate()).await
}

/// A worker falls silent with one message in its handler and four behind it. Another takes all five over.
async fn what_another_took_over_is_left_alone<S: Source>(
    name: &str,
    relay: &Relay,
    ledger: &LedgerServer,
    source: impl Fn(u16) -> S,
    [silent, direct]: [u16; 2],
    send: impl AsyncFn(u32),
) {
    let (began, seen, gate) = (Seen::default(), Seen::default(), Arc::new(Semaphore::new(0)));
    let first = gated(ledger, name, source(silent), &began, &gate).await;
    for id in 1..=5 {
        send(id).await;
    }
    began.reaches(1, BOUND).await;
    // The others are fetched meanwhile.
    tokio::time::sleep(Duration::from_millis(500)).await;
    relay.freeze();
    let second = seeing(ledger, name, source(direct), &seen).await;
    seen.reaches(5, BOUND).await;
    relay.open();
    gate.add_permits(1_000);
    let worker = first.worker.clone();
    eventually("it lets four go", BOUND, || async { worker.health().report.stale == 4 }).await;
    assert_eq!((began.all(), seen.count()), (vec!["payload 1".to_owned()], 5));
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_took_over_of_a_stream_is_left_alone() {
    let ledger = LedgerServer::start();
    let (name, relay) = (fresh_name("silent_stream"), Relay::to(ledger.server.port()));
    let direct = ledger.direct().await;
    let source = |port: u16| {
        let url = format!("redis://127.0.0.1:{port}/");
        StreamSource::new(&direct, StreamSettings::new(&name).reclaim(SILENT_FOR).url(url)).unwrap()
    };
    let ports = [relay.port(), ledger.server.port()];
    let publisher = StreamPublisher::new(&direct, &name, None).unwrap();
    let send = async |id| publisher.publish(&message(id)).await.unwrap();
    what_another_took_over_is_left_alone(&name, &relay, &ledger, source, ports, send).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_took_of_a_stream_stays_there() {
    let ledger = LedgerServer::start();
    let (name, relay) = (fresh_name("thawed_stream"), Relay::to(ledger.server.port()));
    let direct = ledger.direct().await;
    let settings = StreamSettings::new(&name).reclaim(SILENT_FOR).url(format!("redis://127.0.0.1:{}/", relay.port()));
    let publisher = StreamPublisher::new(&direct, &name, None).unwrap();
    for id in 1..=5 {
        publisher.publish(&message(id)).await.unwrap();
    }
    let (began, gate) = (Seen::default(), Arc::new(Semaphore::new(0)));
    // One is in its handler when it ends, and four are behind it.
    let worker = WorkerSettings::new().workers(1).drain(Duration::from_millis(500));
    let source = StreamSource::new(&direct, settings).unwrap();
    let running = gated_with(&ledger, &name, worker, source, &began, &gate).await;
    began.reaches(1, BOUND).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    relay.freeze();
    tokio::time::sleep(SILENT_FOR + Duration::from_millis(500)).await;
    let mut server = ledger.server.connect();
    let silent_for = SILENT_FOR.as_millis().to_string();
    reply(&mut server, &["XAUTOCLAIM", &name, "resil", "another", &silent_for, "0"]).unwrap();
    relay.open();
    let report = running.stop().await;
    let pending = reply(&mut server, &["XPENDING", &name, "resil", "-", "+", "100", "another"]).unwrap();
    assert_eq!(redis::from_redis_value::<Vec<redis::Value>>(pending).unwrap().len(), 5, "{report:?}");
}

/// A fresh table, and where it is.
async fn outbox(what: &str) -> (String, Outbox, u16) {
    let server = tokio::task::spawn_blocking(postgres).await.unwrap();
    let name = fresh_name(what);
    let outbox = Outbox::new(&name).unwrap();
    connect(&server.url()).await.unwrap().batch_execute(&outbox.migration()).await.unwrap();
    (name, outbox, server.port())
}

fn source_of(client: &Client, outbox: &Outbox, port: u16) -> OutboxSource {
    let settings = OutboxSettings::new(Postgres::url_at(port)).outbox(outbox.clone()).claim(SILENT_FOR);
    OutboxSource::new(client, settings.poll(Duration::from_millis(50))).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_took_over_of_an_outbox_is_left_alone() {
    let ledger = LedgerServer::start();
    let (name, outbox, port) = outbox("silent_outbox").await;
    let relay = Relay::to(port);
    let (direct, ports) = (ledger.direct().await, [relay.port(), port]);
    let source = |port: u16| source_of(&direct, &outbox, port);
    let database = connect(&postgres().url()).await.unwrap();
    let send = async |id| outbox.add(&database, &message(id)).await.unwrap();
    what_another_took_over_is_left_alone(&name, &relay, &ledger, source, ports, send).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outbox_with_other_types_is_read_once_mended() {
    let ledger = LedgerServer::start();
    let (name, outbox, port) = outbox("altered_outbox").await;
    let database = connect(&postgres().url()).await.unwrap();
    outbox.add(&database, &message(1)).await.unwrap();
    let alter = |to: &str| format!("ALTER TABLE {name} ALTER COLUMN schema TYPE {to}");
    database.batch_execute(&alter("bigint")).await.unwrap();
    let seen = Seen::default();
    let running = seeing(&ledger, &name, source_of(&ledger.direct().await, &outbox, port), &seen).await;
    eventually("it says why", BOUND, || async {
        let reason = running.worker.health().source.and_then(|source| source.reason);
        reason.is_some_and(|reason| reason.contains("not as its migration made it"))
    })
    .await;
    database.batch_execute(&alter("integer")).await.unwrap();
    seen.reaches(1, BOUND).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outbox_that_is_dropped_and_made_again_is_read() {
    let ledger = LedgerServer::start();
    let (name, outbox, port) = outbox("dropped_outbox").await;
    let database = connect(&postgres().url()).await.unwrap();
    let seen = Seen::default();
    let running = seeing(&ledger, &name, source_of(&ledger.direct().await, &outbox, port), &seen).await;
    outbox.add(&database, &message(1)).await.unwrap();
    seen.reaches(1, BOUND).await;
    database.batch_execute(&format!("DROP TABLE {name}")).await.unwrap();
    eventually("it is away", BOUND, || async {
        running.worker.health().source.is_some_and(|source| !source.is_connected)
    })
    .await;
    database.batch_execute(&outbox.migration()).await.unwrap();
    outbox.add(&database, &message(2)).await.unwrap();
    seen.reaches(2, BOUND).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_outbox_gathers_no_statements_that_wait() {
    let ledger = LedgerServer::start();
    let (name, outbox, port) = outbox("locked_outbox").await;
    let mut database = connect(&postgres().url()).await.unwrap();
    outbox.add(&database, &message(1)).await.unwrap();
    let lock = database.transaction().await.unwrap();
    lock.batch_execute(&format!("LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")).await.unwrap();
    let seen = Seen::default();
    let running = seeing(&ledger, &name, source_of(&ledger.direct().await, &outbox, port), &seen).await;
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1";
    // Within a transaction it would always show the same.
    let watching = connect(&postgres().url()).await.unwrap();
    let (since, mut most) = (Instant::now(), 0);
    // Longer than two attempts take.
    while since.elapsed() < Duration::from_secs(14) {
        most = most.max(watching.query_one(waiting, &[&format!("%{name}%")]).await.unwrap().get::<_, i64>(0));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(most, 1, "one waits, and those before it have given up");
    lock.commit().await.unwrap();
    seen.reaches(1, BOUND).await;
    let report = running.stop().await;
    assert_eq!((report.done, report.retried, seen.count()), (1, 0, 1), "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trimmed_stream_without_its_group_is_read_on() {
    let ledger = LedgerServer::start();
    let (name, direct) = (fresh_name("trimmed"), ledger.direct().await);
    let source = StreamSource::new(&direct, StreamSettings::new(&name).reclaim(SILENT_FOR)).unwrap();
    let publisher = StreamPublisher::new(&direct, &name, None).unwrap();
    let (seen, gate) = (Seen::default(), Arc::new(Semaphore::new(0)));
    let running = gated(&ledger, &name, source, &seen, &gate).await;
    for id in 1..=5 {
        publisher.publish(&message(id)).await.unwrap();
    }
    seen.reaches(1, BOUND).await;
    let mut server = ledger.server.connect();
    reply(&mut server, &["XTRIM", &name, "MAXLEN", "0"]).unwrap();
    // Until what is in hand was looked at: the server has forgotten it.
    tokio::time::sleep(SILENT_FOR).await;
    gate.add_permits(1_000);
    publisher.publish(&message(6)).await.unwrap();
    eventually("the next is seen", BOUND, || async { seen.all().contains(&"payload 6".to_owned()) }).await;
    reply(&mut server, &["XGROUP", "DESTROY", &name, "resil"]).unwrap();
    publisher.publish(&message(7)).await.unwrap();
    eventually("the next is seen", BOUND, || async { seen.all().contains(&"payload 7".to_owned()) }).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_with_other_arguments_gets_its_bindings() {
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    let (_connection, channel) = place.channel().await;
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(place.name.as_str().into(), durable, FieldTable::default()).await.unwrap();
    let (seen, exchange) = (Seen::default(), format!("{}.in", place.name));
    let settings = place.settings.clone().bind(&exchange, "topic", "order.*");
    let source = RabbitSource::new(&ledger.direct().await, settings).unwrap();
    let running = seeing(&ledger, &place.name, source, &seen).await;
    eventually("it consumes", BOUND, || async {
        running.worker.health().source.is_some_and(|source| source.is_connected)
    })
    .await;
    let publisher = RabbitPublisher::new(&ledger.direct().await, &place.settings).unwrap();
    publisher.publish(&exchange, "order.placed", &message(1)).await.unwrap();
    seen.reaches(1, BOUND).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_exchange_is_said_at_the_first_attempt() {
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    let publisher = RabbitPublisher::new(&ledger.client().await, &place.settings).unwrap();
    eventually("it is connected", BOUND, || async { publisher.health().is_connected }).await;
    let missing = publisher.publish("no such exchange", "order.placed", &message(1)).await.unwrap_err();
    let is_said = matches!(&missing, PublishError::Unroutable { reason, .. } if reason == "NO_EXCHANGE");
    assert!(is_said, "{missing:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_without_memory_is_not_ready() {
    let (broker, ledger) = tokio::task::spawn_blocking(|| (RabbitMq::start(), LedgerServer::start())).await.unwrap();
    let place = AtRabbit::of(&ledger, &broker).await;
    let (_connection, channel) = place.channel().await;
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(place.name.as_str().into(), durable, FieldTable::default()).await.unwrap();
    let publisher = RabbitPublisher::new(&ledger.client().await, &place.settings).unwrap();
    publisher.publish("", &place.name, &message(1)).await.unwrap();
    broker.control(&["set_vm_memory_high_watermark", "0.00001"]);
    let blocked = publisher.publish("", &place.name, &message(2)).await.unwrap_err();
    let is_said = matches!(&blocked, PublishError::NotConfirmed { last, .. } if last.contains("blocks publishers"));
    assert!(is_said, "{blocked:?}");
    let health = publisher.health();
    assert!(!health.is_connected && health.reason.is_some_and(|reason| reason.contains("memory")));
    broker.control(&["set_vm_memory_high_watermark", "0.8"]);
    eventually("it is ready again", Duration::from_secs(15), || async { publisher.health().is_connected }).await;
    publisher.publish("", &place.name, &message(3)).await.unwrap();
    let passive = QueueDeclareOptions { passive: true, ..durable };
    let there = channel.queue_declare(place.name.as_str().into(), passive, FieldTable::default()).await.unwrap();
    assert_eq!(there.message_count(), 3, "the second was on its way when the broker blocked, once");
}

/// The little of AMQP that it takes to send what no library lets through.
struct RawPublisher(TcpStream);

impl RawPublisher {
    fn connect(port: u16) -> Self {
        let mut raw = Self(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap());
        raw.0.set_read_timeout(Some(BOUND)).unwrap();
        raw.0.write_all(b"AMQP\x00\x00\x09\x01").unwrap();
        raw.expect([10, 10]);
        // start-ok: no properties, PLAIN, "\0guest\0guest", en_US
        raw.method(
            0,
            [10, 11],
            &[&[0; 4][..], b"\x05PLAIN", b"\x00\x00\x00\x0c\x00guest\x00guest", b"\x05en_US"].concat(),
        );
        let tune = raw.expect([10, 30]);
        raw.method(0, [10, 31], &[&tune[..6], &[0, 0]].concat());
        raw.method(0, [10, 40], b"\x01/\x00\x00");
        raw.expect([10, 41]);
        raw.method(1, [20, 10], &[0]);
        raw.expect([20, 11]);
        raw
    }

    fn frame(&mut self, kind: u8, channel: u8, payload: &[u8]) {
        let size = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let frame = [&[kind, 0, channel][..], &size, payload, &[0xCE]].concat();
        self.0.write_all(&frame).unwrap();
    }

    fn method(&mut self, channel: u8, [class, method]: [u8; 2], arguments: &[u8]) {
        self.frame(1, channel, &[&[0, class, 0, method][..], arguments].concat());
    }

    /// The arguments of the next method, which must be this one.
    fn expect(&mut self, [class, method]: [u8; 2]) -> Vec<u8> {
        let mut head = [0; 7];
        self.0.read_exact(&mut head).unwrap();
        let size = u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize;
        let mut payload = vec![0; size + 1];
        self.0.read_exact(&mut payload).unwrap();
        assert_eq!(payload[..4], [0, class, 0, method]);
        payload[4..size].to_vec()
    }

    /// A persistent message with this id, in whatever bytes.
    fn publish(&mut self, queue: &str, id: &[u8], body: &[u8]) {
        let short = |bytes: &[u8]| [&[u8::try_from(bytes.len()).unwrap()][..], bytes].concat();
        self.method(1, [60, 40], &[&[0, 0, 0][..], &short(queue.as_bytes()), &[0]].concat());
        let flags: u16 = 1 << 12 | 1 << 7;
        let size = (body.len() as u64).to_be_bytes();
        self.frame(2, 1, &[&[0, 60, 0, 0][..], &size, &flags.to_be_bytes(), &[2], &short(id)].concat());
        self.frame(3, 1, body);
        // The broker has read it when it has closed the channel.
        self.method(1, [20, 40], &[0, 200, 0, 0, 0, 0, 0]);
        self.expect([20, 41]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_no_client_can_read_blocks_no_others() {
    let ledger = LedgerServer::start();
    let place = AtRabbit::new(&ledger).await;
    let settings = place.settings.clone().delivery_limit(2);
    let source = RabbitSource::new(&ledger.direct().await, settings).unwrap();
    let seen = Seen::default();
    let running = seeing(&ledger, &place.name, source, &seen).await;
    place.send(message(1)).await;
    seen.reaches(1, BOUND).await;
    let queue = place.name.clone();
    let raw = move || RawPublisher::connect(rabbit().port()).publish(&queue, b"caf\xe9", b"x");
    tokio::task::spawn_blocking(raw).await.unwrap();
    // It ends the connection whenever it is delivered, until the broker gives it up.
    let worker = running.worker.clone();
    let connections = || worker.health().source.map_or(0, |source| source.connections);
    eventually("it was delivered until the limit", BOUND, || async { connections() >= 4 }).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = connections();
    for id in 2..=20 {
        place.send(message(id)).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    seen.reaches(20, BOUND).await;
    assert_eq!(connections(), before, "nothing disturbs the others");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_the_ledger_refuses_keep_no_worker_from_others() {
    let ledger = LedgerServer::start();
    let (name, direct) = (fresh_name("refused"), ledger.direct().await);
    let publisher = StreamPublisher::new(&direct, &name, None).unwrap();
    // An id that no ledger can store.
    for number in 0..3 {
        publisher.publish(&OutgoingMessage::new("bad").id(format!("{}{number}", "x".repeat(600)))).await.unwrap();
    }
    publisher.publish(&message(1)).await.unwrap();
    let worker = ledger.client().await.worker(&name, WorkerSettings::new().workers(2)).unwrap();
    let source = StreamSource::new(&direct, StreamSettings::new(&name)).unwrap();
    let (running, seen) = (worker.clone(), Seen::default());
    let saw = seen.clone();
    let running = RunningWorker::new(&worker, async move {
        running
            .run(source, move |message| {
                let is_bad = &message.payload()[..] == b"bad";
                if !is_bad {
                    saw.add(message.id());
                }
                async move { if is_bad { Err(WorkError::permanent("no")) } else { Ok(()) } }
            })
            .await
    });
    seen.reaches(1, BOUND).await;
    let report = running.stop().await;
    assert_eq!((report.done, report.given_back, report.dead), (1, 3, 0), "what is kept goes back: {report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_handler_that_blocks_among_quick_ones_keeps_nobody_waiting() {
    let ledger = LedgerServer::start();
    let (name, direct) = (fresh_name("blocking"), ledger.direct().await);
    let publisher = StreamPublisher::new(&direct, &name, None).unwrap();
    for number in 0..40 {
        let payload = if number == 20 { "blocks".to_owned() } else { number.to_string() };
        publisher.publish(&OutgoingMessage::new(payload)).await.unwrap();
    }
    let worker = ledger.client().await.worker(&name, WorkerSettings::new()).unwrap();
    let source = StreamSource::new(&direct, StreamSettings::new(&name).prefetch(50)).unwrap();
    let (running, seen) = (worker.clone(), Seen::default());
    let saw = seen.clone();
    let running = RunningWorker::new(&worker, async move {
        running
            .run(source, move |message| {
                if &message.payload()[..] == b"blocks" {
                    std::thread::sleep(Duration::from_secs(4));
                }
                saw.add(String::from_utf8_lossy(message.payload()));
                std::future::ready(Ok(()))
            })
            .await
    });
    seen.reaches(40, BOUND).await;
    assert_eq!(seen.all().last().map(String::as_str), Some("blocks"), "the others did not wait for it");
    assert_eq!(running.stop().await.done, 40);
}
