//! What a worker costs beside a bare consumer: messages per second with a handler that does nothing, and CPU time of this process per message.
//!
//! A turn drains a queue twice with a worker and twice with a bare consumer of the same prefetch: worker, bare, bare, worker, or the other way round.
//! What is compared was measured within a second, and neither has the better place. The first turns warm both up and are not counted. Medians of
//! all turns go to standard output as Markdown, each with the interval that has the true median with 95 %: a bar below an interval is met, one above
//! it is missed, and one inside is not decided. `TURNS` (16) and `MESSAGES` (10,000) change how much, `ONLY` (`rabbit` or `stream`) what.
//!
//! # What is timed
//! *Handling*: from the first message to the last that a handler has, which is how fast a queue that never ends is consumed. *A drain*: until
//! the broker has every acknowledgement and the consumer is closed, which is what a job waits for. CPU time is that of the drain. After each drain the
//! broker is asked whether anything is left.
//!
//! Prefetch is what a user would set to the same number: messages without an acknowledgement for RabbitMQ, COUNT of a read for a stream. A bare consumer
//! of a stream has at most COUNT messages in hand, a worker up to three times as many, so there is a row with COUNT 150, too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
    ConfirmSelectOptions, QueueDeclareOptions,
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
    handled_per_second: f64,
    drained_per_second: f64,
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
    messages: u64,
    began: OnceLock<(Instant, Duration)>,
    handled: OnceLock<Instant>,
}

impl Watch {
    fn of(messages: u64) -> Self {
        Self { messages, began: OnceLock::new(), handled: OnceLock::new() }
    }

    /// A message is here, counted from 1.
    fn note(&self, number: u64) {
        if number == 1 {
            self.began.get_or_init(|| (Instant::now(), cpu()));
        }
        if number == self.messages {
            self.handled.get_or_init(Instant::now);
        }
    }

    fn stop(&self) -> Drained {
        let (now, cpu_now) = (Instant::now(), cpu());
        let (began, cpu_then) = *self.began.get().expect("a first message");
        let handled = *self.handled.get().expect("a last message");
        let messages = self.messages as f64;
        Drained {
            handled_per_second: messages / (handled - began).as_secs_f64(),
            drained_per_second: messages / (now - began).as_secs_f64(),
            cpu_us: (cpu_now - cpu_then).as_secs_f64() * 1e6 / messages,
        }
    }
}

/// The median, and the interval that has the true one with 95 %: by their ranks, whatever their distribution is.
fn median(all: impl IntoIterator<Item = f64>) -> (f64, f64, f64) {
    let mut all: Vec<f64> = all.into_iter().collect();
    all.sort_by(f64::total_cmp);
    let (count, middle) = (all.len() as f64, all.len() / 2);
    let below = ((count - 1.96 * count.sqrt()) / 2.0).floor().max(0.0) as usize;
    let center = if all.len() % 2 == 1 { all[middle] } else { (all[middle - 1] + all[middle]) / 2.0 };
    (center, all[below], all[all.len() - 1 - below])
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
    let watch = Watch::of(messages);
    for number in 1..=messages {
        let delivery = consumer.next().await.expect("a delivery").expect("no error");
        watch.note(number);
        if number % every == 0 || number == messages {
            let options = BasicAckOptions { multiple: every > 1 };
            delivery.acker.ack(options).await.expect("acknowledged");
        }
    }
    // What the channel keeps of the acknowledgements is lost when it closes: see "A consumer of your own" in docs/workers.md.
    channel.basic_cancel("bare".into(), BasicCancelOptions::default()).await.expect("cancelled");
    for _ in 0..2 {
        channel.basic_qos(PREFETCH, BasicQosOptions::default()).await.expect("a reply");
    }
    connection.close(200, "done".into()).await.expect("closed");
    watch.stop()
}

async fn drain<S: Source>(client: &Client, name: &str, source: S, messages: u64) -> Drained {
    let worker = client.worker(name, WorkerSettings::new()).expect("a worker");
    let (stop, handled, watch) = (worker.stopper(), AtomicU64::new(0), Arc::new(Watch::of(messages)));
    let noted = Arc::clone(&watch);
    let handler = move |_| {
        let number = handled.fetch_add(1, Ordering::Relaxed) + 1;
        noted.note(number);
        if number == messages {
            stop.cancel();
        }
        std::future::ready(Ok(()))
    };
    let report = worker.run(source, handler).await.expect("a report");
    let drained = watch.stop();
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
    let (watch, mut seen, mut handled) = (Watch::of(messages), 0, 0);
    while seen < messages {
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP").arg("resil").arg("bare").arg("COUNT").arg(count).arg("BLOCK").arg(1_000);
        let reply: Streams = read.arg("STREAMS").arg(QUEUE).arg(">").query_async(redis).await.expect("messages");
        let entries = reply.unwrap_or_default().into_iter().flat_map(|(_, entries)| entries);
        let ids: Vec<String> = entries.map(|(id, _)| id).collect();
        for _ in &ids {
            handled += 1;
            watch.note(handled);
        }
        let at_once = if acks == Acks::Single { 1 } else { ids.len() };
        for some in ids.chunks(at_once.max(1)) {
            let mut ack = redis::cmd("XACK");
            let _: u64 = ack.arg(QUEUE).arg("resil").arg(some).query_async(redis).await.expect("acknowledged");
            seen += some.len() as u64;
        }
    }
    watch.stop()
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Who drains.
#[derive(Clone, Copy, PartialEq)]
enum Consumer {
    RabbitWorker,
    /// An acknowledgement for so many.
    BareRabbit(u64),
    StreamWorker,
    /// COUNT, and how it acknowledges.
    BareStream(u16, Acks),
}

const PAIRS: [(&str, Consumer, Consumer); 5] = [
    ("RabbitMQ, bare lapin, one acknowledgement for 25", Consumer::RabbitWorker, Consumer::BareRabbit(25)),
    ("RabbitMQ, bare lapin, an acknowledgement for each", Consumer::RabbitWorker, Consumer::BareRabbit(1)),
    (
        "Redis stream, bare redis-rs, one XACK for each read of 50",
        Consumer::StreamWorker,
        Consumer::BareStream(PREFETCH, Acks::Together),
    ),
    (
        "Redis stream, bare redis-rs, one XACK for each read of 150",
        Consumer::StreamWorker,
        Consumer::BareStream(PREFETCH * 3, Acks::Together),
    ),
    (
        "Redis stream, bare redis-rs, an XACK for each message",
        Consumer::StreamWorker,
        Consumer::BareStream(PREFETCH, Acks::Single),
    ),
];

/// Turns that warm up.
const WARMING: u64 = 2;

struct Bench {
    client: Client,
    broker: RabbitMq,
    filling: Channel,
    redis: MultiplexedConnection,
    messages: u64,
}

impl Bench {
    async fn drained(&mut self, consumer: Consumer) -> Drained {
        let (messages, url) = (self.messages, self.broker.url());
        match consumer {
            Consumer::RabbitWorker | Consumer::BareRabbit(_) => fill_queue(&self.filling, messages).await,
            Consumer::StreamWorker | Consumer::BareStream(..) => fill_stream(&mut self.redis, messages).await,
        }
        let drained = match consumer {
            Consumer::RabbitWorker => {
                let settings = RabbitSettings::new(url, QUEUE).prefetch(PREFETCH / 5).workers(5);
                let source = RabbitSource::new(&self.client, settings).expect("a source");
                drain(&self.client, "bench-rabbit", source, messages).await
            }
            Consumer::BareRabbit(every) => bare_rabbit(&url, messages, every).await,
            Consumer::StreamWorker => {
                let settings = StreamSettings::new(QUEUE).prefetch(u32::from(PREFETCH));
                let source = StreamSource::new(&self.client, settings).expect("a source");
                drain(&self.client, "bench-stream", source, messages).await
            }
            Consumer::BareStream(count, acks) => bare_stream(&mut self.redis, messages, count, acks).await,
        };
        match consumer {
            Consumer::RabbitWorker | Consumer::BareRabbit(_) => is_drained(&self.filling).await,
            Consumer::StreamWorker | Consumer::BareStream(..) => is_acknowledged(&mut self.redis).await,
        }
        drained
    }
}

/// Of two drains of one consumer in one turn.
fn mean(pair: [Drained; 2], of: impl Fn(&Drained) -> f64) -> f64 {
    (of(&pair[0]) + of(&pair[1])) / 2.0
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let (turns, messages) = (setting("TURNS", 16), setting("MESSAGES", 10_000));
    let only = std::env::var("ONLY").unwrap_or_default();
    let server = Server::fresh();
    let broker = RabbitMq::start();
    let url = format!("redis://127.0.0.1:{}/", server.port());
    let client = resil::connect(&url).await.expect("a client");
    let redis =
        redis::Client::open(url).expect("a URL").get_multiplexed_async_connection().await.expect("a connection");
    let (_keep, filling) = channel(&broker.url()).await;
    let mut bench = Bench { client, broker, filling, redis, messages };

    println!(
        "| beside, prefetch {PREFETCH} | turns | handling | a drain | messages/s, worker | bare | CPU of the client, worker | bare | more |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for (name, worker, bare) in PAIRS.into_iter().filter(|(name, ..)| name.to_lowercase().contains(&only)) {
        let mut counted = Vec::new();
        for turn in 0..turns + WARMING {
            let order = if turn % 2 == 0 { [worker, bare, bare, worker] } else { [bare, worker, worker, bare] };
            let mut drained = Vec::new();
            for consumer in order {
                drained.push((consumer, bench.drained(consumer).await));
            }
            let of = |which: Consumer| {
                let mut both = drained.iter().filter(|(consumer, _)| *consumer == which).map(|(_, drained)| *drained);
                [both.next().expect("the first"), both.next().expect("the second")]
            };
            if turn >= WARMING {
                counted.push((of(worker), of(bare)));
            }
        }
        let ratio = |of: fn(&Drained) -> f64| {
            let (middle, low, high) = median(counted.iter().map(|(worker, bare)| mean(*worker, of) / mean(*bare, of)));
            format!("{middle:.2}x ({low:.2} to {high:.2})")
        };
        let cpu = |drained: &Drained| drained.cpu_us;
        let (handled, drained) = (ratio(|it| it.handled_per_second), ratio(|it| it.drained_per_second));
        let worker_speed = median(counted.iter().map(|(worker, _)| mean(*worker, |it| it.handled_per_second))).0;
        let bare_speed = median(counted.iter().map(|(_, bare)| mean(*bare, |it| it.handled_per_second))).0;
        let worker_cpu = median(counted.iter().map(|(worker, _)| mean(*worker, cpu))).0;
        let bare_cpu = median(counted.iter().map(|(_, bare)| mean(*bare, cpu))).0;
        let more = median(counted.iter().map(|(worker, bare)| mean(*worker, cpu) - mean(*bare, cpu))).0;
        println!(
            "| {name} | {turns} | {handled} | {drained} | {worker_speed:.0} | {bare_speed:.0} | {worker_cpu:.1} us | {bare_cpu:.1} us | {more:+.1} us |"
        );
    }
}
