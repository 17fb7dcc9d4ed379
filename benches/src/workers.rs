//! What a worker costs beside a bare consumer: messages per second with a handler that does nothing, and CPU time of this process per message.
//!
//! Each round fills a queue, drains it with a bare consumer, fills it again and drains it with a worker, with the same prefetch. Medians of all rounds
//! go to standard output as Markdown. `ROUNDS` (7) and `MESSAGES` (20,000) change how much.
//!
//! # What is timed
//! From the first delivery until the broker has every acknowledgement and the consumer is closed: what somebody would time who drains a queue in a job.
//! For RabbitMQ that is when the connection is closed in order, which the broker confirms after the acknowledgements before it; for a stream when the
//! last XACK was replied to, and the worker has returned. After each drain the broker is asked whether anything is left.
//!
//! Prefetch is what a user would set to the same number: messages without an acknowledgement for RabbitMQ, COUNT of a read for a stream. A bare consumer
//! of a stream has at most COUNT messages in hand, a worker up to three times as many, so there is a row with COUNT 150, too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
    QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use redis::aio::MultiplexedConnection;
use resil::Client;
use resil::worker::rabbit::{RabbitSettings, RabbitSource};
use resil::worker::streams::{StreamSettings, StreamSource};
use resil::worker::{Source, WorkerSettings};
use resil_harness::{RabbitMq, Server};

const PREFETCH: u16 = 50;
const QUEUE: &str = "bench";

/// How one drain went.
#[derive(Clone, Copy)]
struct Drained {
    per_second: f64,
    cpu_us: f64,
}

/// CPU time of this process so far: the clients, not the broker.
fn cpu() -> Duration {
    // SAFETY: a zeroed structure is what getrusage fills.
    let used = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut used);
        used
    };
    let of = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1_000);
    of(used.ru_utime) + of(used.ru_stime)
}

struct Watch {
    began: Instant,
    cpu: Duration,
}

impl Watch {
    fn start() -> Self {
        Self { began: Instant::now(), cpu: cpu() }
    }

    fn stop(&self, messages: u64) -> Drained {
        let (wall, cpu) = (self.began.elapsed(), cpu() - self.cpu);
        Drained { per_second: messages as f64 / wall.as_secs_f64(), cpu_us: cpu.as_secs_f64() * 1e6 / messages as f64 }
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

async fn channel(url: &str) -> (Connection, Channel) {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.expect("a broker");
    let channel = connection.create_channel().await.expect("a channel");
    (connection, channel)
}

/// The same queue for both: what a worker declares.
async fn fill_queue(channel: &Channel, messages: u64) {
    let mut arguments = FieldTable::default();
    for (name, text) in [("x-queue-type", "quorum"), ("x-dead-letter-exchange", "bench.dlx")] {
        arguments.insert(name.into(), AMQPValue::LongString(text.into()));
    }
    arguments.insert("x-delivery-limit".into(), AMQPValue::LongInt(20));
    let options = QueueDeclareOptions { durable: true, ..Default::default() };
    let declared = channel.queue_declare(QUEUE.into(), options, arguments).await;
    drop(declared); // with what arguments does not matter, as long as both drain the same one
    channel.confirm_select(ConfirmSelectOptions::default()).await.expect("confirms");
    let mut confirms = Vec::new();
    for number in 0..messages {
        let properties = BasicProperties::default().with_delivery_mode(2).with_message_id(number.to_string().into());
        let sent = channel
            .basic_publish("".into(), QUEUE.into(), BasicPublishOptions::default(), b"{\"pieces\": 7}", properties)
            .await;
        confirms.push(sent.expect("sent"));
    }
    for confirm in confirms {
        confirm.await.expect("confirmed");
    }
}

/// How a bare consumer acknowledges: each message, or all up to every so many.
async fn bare_rabbit(url: &str, messages: u64, every: u64) -> Drained {
    let (connection, channel) = channel(url).await;
    channel.basic_qos(PREFETCH, BasicQosOptions::default()).await.expect("a prefetch");
    let consuming =
        channel.basic_consume(QUEUE.into(), "bare".into(), BasicConsumeOptions::default(), FieldTable::default());
    let mut consumer = consuming.await.expect("a consumer");
    let mut watch = None;
    for number in 1..=messages {
        let delivery = consumer.next().await.expect("a delivery").expect("no error");
        watch.get_or_insert_with(Watch::start);
        if number % every == 0 || number == messages {
            let options = BasicAckOptions { multiple: every > 1 };
            delivery.acker.ack(options).await.expect("acknowledged");
        }
    }
    connection.close(200, "done".into()).await.expect("closed");
    watch.expect("a delivery").stop(messages)
}

async fn drain<S: Source>(client: &Client, name: &str, source: S, messages: u64) -> Drained {
    let worker = client.worker(name, WorkerSettings::new()).expect("a worker");
    let (stop, handled, watch) = (worker.stopper(), AtomicU64::new(0), Arc::new(OnceLock::new()));
    let first = Arc::clone(&watch);
    let handler = move |_| {
        let number = handled.fetch_add(1, Ordering::Relaxed) + 1;
        if number == 1 {
            let _ = first.set(Watch::start());
        }
        if number == messages {
            stop.cancel();
        }
        std::future::ready(Ok(()))
    };
    let report = worker.run(source, handler).await.expect("a report");
    let drained = watch.get().expect("a message").stop(messages);
    assert_eq!((report.retried, report.dead, report.unsettled, report.done), (0, 0, 0, messages), "nothing fails here");
    drained
}

/// Nothing is left, says the broker.
async fn is_drained(channel: &Channel) {
    let passive = QueueDeclareOptions { passive: true, ..Default::default() };
    let left = channel.queue_declare(QUEUE.into(), passive, FieldTable::default()).await.expect("a queue");
    assert_eq!(left.message_count(), 0);
}

async fn is_acknowledged(redis: &mut MultiplexedConnection) {
    let mut pending = redis::cmd("XPENDING");
    let pending: redis::Value = pending.arg(QUEUE).arg("resil").query_async(redis).await.expect("what is pending");
    assert!(
        matches!(&pending, redis::Value::Array(parts) if parts.first() == Some(&redis::Value::Int(0))),
        "{pending:?}"
    );
}

async fn fill_stream(redis: &mut MultiplexedConnection, messages: u64) {
    let _: () = redis::cmd("DEL").arg(QUEUE).query_async(redis).await.expect("deleted");
    for some in 0..messages.div_ceil(1_000) {
        let mut pipe = redis::pipe();
        for number in some * 1_000..messages.min((some + 1) * 1_000) {
            pipe.cmd("XADD").arg(QUEUE).arg("*").arg("id").arg(number).arg("payload").arg("{\"pieces\": 7}").ignore();
        }
        let _: () = pipe.query_async(redis).await.expect("added");
    }
    let mut made = redis::cmd("XGROUP");
    let _: () = made.arg("CREATE").arg(QUEUE).arg("resil").arg("0").query_async(redis).await.expect("a group");
}

/// One XACK for each message, or one for each read.
#[derive(Clone, Copy, PartialEq)]
enum Acks {
    Single,
    Together,
}

/// What XREADGROUP replies: for each stream its entries, each an id and its fields.
type Streams = Option<Vec<(String, Vec<(String, Vec<String>)>)>>;

async fn bare_stream(redis: &mut MultiplexedConnection, messages: u64, count: u16, acks: Acks) -> Drained {
    let (mut watch, mut seen) = (None, 0);
    while seen < messages {
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP").arg("resil").arg("bare").arg("COUNT").arg(count).arg("BLOCK").arg(1_000);
        let reply: Streams = read.arg("STREAMS").arg(QUEUE).arg(">").query_async(redis).await.expect("messages");
        watch.get_or_insert_with(Watch::start);
        let entries = reply.unwrap_or_default().into_iter().flat_map(|(_, entries)| entries);
        let ids: Vec<String> = entries.map(|(id, _)| id).collect();
        let at_once = if acks == Acks::Single { 1 } else { ids.len() };
        for some in ids.chunks(at_once.max(1)) {
            let mut ack = redis::cmd("XACK");
            let _: u64 = ack.arg(QUEUE).arg("resil").arg(some).query_async(redis).await.expect("acknowledged");
            seen += some.len() as u64;
        }
    }
    watch.expect("a delivery").stop(messages)
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let (rounds, messages) = (setting("ROUNDS", 7), setting("MESSAGES", 20_000));
    let server = Server::fresh();
    let broker = RabbitMq::start();
    let url = format!("redis://127.0.0.1:{}/", server.port());
    let client = resil::connect(&url).await.expect("a client");
    let mut redis =
        redis::Client::open(url).expect("a URL").get_multiplexed_async_connection().await.expect("a connection");
    let (_keep, filling) = channel(&broker.url()).await;

    let names = [
        "RabbitMQ, bare lapin, an acknowledgement for each",
        "RabbitMQ, bare lapin, one acknowledgement for 25",
        "RabbitMQ, Resil worker",
        "Redis stream, bare redis-rs, an XACK for each message",
        "Redis stream, bare redis-rs, one XACK for each read of 50",
        "Redis stream, bare redis-rs, one XACK for each read of 150",
        "Redis stream, Resil worker",
    ];
    let mut rows: [Vec<Drained>; 7] = Default::default();
    for round in 0..rounds {
        eprintln!("round {}", round + 1);
        for (at, every) in [(0, 1), (1, 25)] {
            fill_queue(&filling, messages).await;
            rows[at].push(bare_rabbit(&broker.url(), messages, every).await);
            is_drained(&filling).await;
        }
        fill_queue(&filling, messages).await;
        let settings = RabbitSettings::new(broker.url(), QUEUE).prefetch(PREFETCH / 5).workers(5);
        let source = RabbitSource::new(&client, settings).expect("a source");
        rows[2].push(drain(&client, "bench-rabbit", source, messages).await);
        is_drained(&filling).await;
        for (at, count, acks) in [(3, 50, Acks::Single), (4, 50, Acks::Together), (5, 150, Acks::Together)] {
            fill_stream(&mut redis, messages).await;
            rows[at].push(bare_stream(&mut redis, messages, count, acks).await);
            is_acknowledged(&mut redis).await;
        }
        fill_stream(&mut redis, messages).await;
        let settings = StreamSettings::new(QUEUE).prefetch(u32::from(PREFETCH));
        let source = StreamSource::new(&client, settings).expect("a source");
        rows[6].push(drain(&client, "bench-stream", source, messages).await);
        is_acknowledged(&mut redis).await;
    }
    println!("| consumer, prefetch {PREFETCH} | messages/s | a worker is | CPU of the client |");
    println!("| --- | ---: | ---: | ---: |");
    let speeds: Vec<f64> = rows.iter().map(|row| median(row.iter().map(|one| one.per_second).collect())).collect();
    for (at, (name, row)) in names.iter().zip(&rows).enumerate() {
        let cpu_us = median(row.iter().map(|one| one.cpu_us).collect());
        let worker = if at < 3 { 2 } else { 6 };
        // Of each round, and the median of those: what is compared was measured a second apart.
        let ratios = rows[worker].iter().zip(row).map(|(worker, bare)| worker.per_second / bare.per_second);
        let ratio = median(ratios.collect());
        let ratio = if at == worker { String::new() } else { format!("{ratio:.2}x") };
        println!("| {name} | {:.0} | {ratio} | {cpu_us:.1} us |", speeds[at]);
    }
}
