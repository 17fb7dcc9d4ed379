//! Their worst days: workers, brokers, Redis, Postgres and the networks between them die by chance, and every message has its effect exactly once.
//!
//! The workers are processes of their own, which are killed: this test binary again, as the test `a_worker_process`, with a [`Plan`] in its environment.
//! Some messages fail at first, some for good. What is judged is the table of effects, which only transactions with `processed_events` write to, and
//! the ledgers.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use resil::dead_letters::{ClassChange, DeadLettersSettings, LedgerChange};
use resil::worker::postgres::{Outbox, OutboxSettings, OutboxSource, ProcessedEvents, connect};
use resil::worker::rabbit::{RabbitPublisher, RabbitSettings, RabbitSource};
use resil::worker::streams::{StreamPublisher, StreamSettings, StreamSource};
use resil::worker::{OutgoingMessage, Source, WorkError, WorkerSettings};
use resil::{Client, ConnectSettings};
use resil_harness::{Options, Postgres, RabbitMq, Relay, Server};

use crate::seed::seeded;

const SOURCES: [&str; 3] = ["camp_queue", "camp_stream", "camp_outbox"];
/// What its worker declares on the broker.
const QUEUES: [&str; 2] = ["camp_queue", "camp_queue.dead"];
const SILENT_FOR: Duration = Duration::from_secs(3);

/// Where a worker process finds everything, through relays.
#[derive(Clone)]
struct Plan {
    redis: String,
    rabbit: String,
    postgres: String,
}

/// Dead from the start, which nothing can mend.
fn is_poison(number: u32) -> bool {
    number % 50 == 7
}

/// Fails once.
fn is_unlucky(number: u32) -> bool {
    number % 9 == 4
}

async fn work(client: &Client, name: &'static str, source: impl Source, postgres: String) {
    let settings = WorkerSettings::new().deadline(Duration::from_secs(30)).crashes(10);
    let worker = client.worker(name, settings).unwrap();
    let handled = worker.run(source, move |message| {
        let url = postgres.clone();
        async move {
            let number: u32 = String::from_utf8_lossy(message.payload()).parse()?;
            if is_poison(number) {
                return Err(WorkError::permanent("poison"));
            }
            if is_unlucky(number) && message.attempt() == 0 {
                return Err(WorkError::retry("unlucky"));
            }
            let mut postgres = connect(&url).await?;
            let effect = postgres.transaction().await?;
            if ProcessedEvents::new(name).is_first(&effect, message.id()).await? {
                effect
                    .execute("INSERT INTO effects (source, number) VALUES ($1, $2)", &[&name, &i64::from(number)])
                    .await?;
            }
            effect.commit().await?;
            Ok(())
        }
    });
    handled.await.unwrap();
}

/// Not a test: what the campaign kills.
#[test]
#[ignore = "run by the campaign, as a process of its own"]
fn a_worker_process() {
    let said = |name: &str| std::env::var(name).ok();
    let (Some(redis), Some(rabbit), Some(postgres)) = (said("PLAN_REDIS"), said("PLAN_RABBIT"), said("PLAN_POSTGRES"))
    else {
        return;
    };
    let source = said("PLAN_SOURCE").unwrap();
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let client = ConnectSettings::new(&redis).connect().await.unwrap();
        match source.as_str() {
            "camp_queue" => {
                let settings = RabbitSettings::new(rabbit, SOURCES[0]).prefetch(4).delivery_limit(1_000);
                work(&client, SOURCES[0], RabbitSource::new(&client, settings).unwrap(), postgres).await;
            }
            "camp_stream" => {
                let settings = StreamSettings::new(SOURCES[1]).reclaim(SILENT_FOR).url(redis).delete(true);
                work(&client, SOURCES[1], StreamSource::new(&client, settings).unwrap(), postgres).await;
            }
            _ => {
                let settings = OutboxSettings::new(&postgres).claim(SILENT_FOR).poll(Duration::from_millis(100));
                work(&client, SOURCES[2], OutboxSource::new(&client, settings).unwrap(), postgres.clone()).await;
            }
        }
    });
}

struct WorkerProcess {
    source: &'static str,
    child: Child,
}

impl WorkerProcess {
    fn start(plan: &Plan, source: &'static str) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "campaign::a_worker_process", "--ignored", "--test-threads=1"])
            .env("PLAN_REDIS", &plan.redis)
            .env("PLAN_RABBIT", &plan.rabbit)
            .env("PLAN_POSTGRES", &plan.postgres)
            .env("PLAN_SOURCE", source)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { source, child }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The servers, and the networks to them.
struct World {
    redis: Server,
    rabbit: RabbitMq,
    postgres: Postgres,
    relays: [Relay; 3],
}

impl World {
    fn start() -> Self {
        // What the ledger and the stream have acknowledged outlives a kill.
        let options = Options::default().config("appendonly", "yes").config("appendfsync", "always");
        let (redis, rabbit, postgres) = (Server::start(options), RabbitMq::start(), Postgres::start());
        let relays = [Relay::to(redis.port()), Relay::to(rabbit.port()), Relay::to(postgres.port())];
        Self { redis, rabbit, postgres, relays }
    }

    fn plan(&self) -> Plan {
        Plan {
            redis: format!("redis://127.0.0.1:{}/", self.relays[0].port()),
            rabbit: RabbitMq::url_at(self.relays[1].port()),
            postgres: Postgres::url_at(self.relays[2].port()),
        }
    }
}

struct Campaign {
    messages: u32,
    faults: u32,
    broker_kills: u32,
    bound: Duration,
}

impl Campaign {
    async fn run(self) {
        let mut chance = seeded("the campaign of the workers");
        let mut world = tokio::task::spawn_blocking(World::start).await.unwrap();
        let plan = world.plan();
        let direct = format!("redis://127.0.0.1:{}/", world.redis.port());
        let client = ConnectSettings::new(direct).connect().await.unwrap();
        let postgres_url = world.postgres.url();
        let database = connect(&postgres_url).await.unwrap();
        database.batch_execute(ProcessedEvents::MIGRATION).await.unwrap();
        database.batch_execute("CREATE TABLE effects (source text, number bigint)").await.unwrap();
        database.batch_execute(&Outbox::default().migration()).await.unwrap();
        for source in SOURCES {
            // A campaign waits for no backoff of minutes.
            let ledger = client.dead_letters(source, DeadLettersSettings::new().actor("campaign")).unwrap();
            let quick =
                ClassChange::default().retries(1_000).base(Duration::from_millis(100)).cap(Duration::from_secs(1));
            ledger.configure(&LedgerChange::new().transient(quick).external(quick).crashes(100)).await.unwrap();
        }
        let mut workers: Vec<WorkerProcess> =
            (0..3).flat_map(|_| SOURCES).map(|source| WorkerProcess::start(&plan, source)).collect();
        let sending = tokio::spawn(send_all(client.clone(), world.rabbit.url(), postgres_url.clone(), self.messages));

        let began = Instant::now();
        for fault in 0..self.faults {
            tokio::time::sleep(Duration::from_millis(chance.u64(100..600))).await;
            let every = (self.faults / self.broker_kills.max(1)).max(2);
            let is_broker = self.broker_kills > 0 && fault % every == every / 2;
            match chance.u32(0..10) {
                _ if is_broker => {
                    world = tokio::task::spawn_blocking(move || {
                        for queue in QUEUES {
                            world.rabbit.wait_until_registered(queue);
                        }
                        world.rabbit.restart();
                        world
                    })
                    .await
                    .unwrap()
                }
                0..4 => {
                    let at = chance.usize(0..workers.len());
                    let source = workers[at].source;
                    workers[at] = WorkerProcess::start(&plan, source);
                }
                4..7 => world.relays[chance.usize(0..3)].cut(),
                7 => {
                    let relay = &world.relays[chance.usize(0..3)];
                    relay.freeze();
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    relay.open();
                }
                8 => {
                    world = tokio::task::spawn_blocking(move || {
                        world.postgres.restart();
                        world
                    })
                    .await
                    .unwrap()
                }
                _ => {
                    world = tokio::task::spawn_blocking(move || {
                        world.redis.restart_after_kill();
                        world
                    })
                    .await
                    .unwrap()
                }
            }
        }
        println!("{} faults in {:?}", self.faults, began.elapsed());
        let sent = tokio::time::timeout(self.bound, sending).await;
        assert!(sent.is_ok(), "not everything could be sent: {}", LAST_TROUBLE.lock().unwrap());
        self.judge(&client, &postgres_url, began).await;
        drop((workers, world));
    }

    async fn judge(&self, client: &Client, postgres: &str, began: Instant) {
        let expected: Vec<i64> = (0..self.messages).filter(|number| !is_poison(*number)).map(i64::from).collect();
        let poison = (0..self.messages).filter(|number| is_poison(*number)).count() as u64;
        let until = Instant::now() + self.bound;
        for source in SOURCES {
            let ledger = client.dead_letters(source, DeadLettersSettings::new()).unwrap();
            loop {
                let database = connect(postgres).await.unwrap();
                let rows = database
                    .query("SELECT number FROM effects WHERE source = $1 ORDER BY number", &[&source])
                    .await
                    .unwrap();
                let effects: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
                // The last fault may have been a kill of this server.
                let info = ledger.info().await;
                if info.is_err() && Instant::now() <= until {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    continue;
                }
                let info = info.unwrap();
                if effects == expected && info.dead == poison && info.waiting + info.taken == 0 {
                    println!("{source}: {} effects, {poison} dead, after {:?}", effects.len(), began.elapsed());
                    break;
                }
                if Instant::now() > until {
                    let missing: Vec<&i64> = expected.iter().filter(|number| !effects.contains(number)).collect();
                    let twice: Vec<&i64> =
                        effects.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| &pair[0]).collect();
                    panic!("{source}: missing {missing:?}, twice {twice:?}, {poison} should be dead: {info:?}");
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

/// Why something could not be sent, last.
static LAST_TROUBLE: std::sync::Mutex<String> = std::sync::Mutex::new(String::new());

/// Sends every number to every source, however often that takes.
async fn send_all(client: Client, rabbit: String, postgres: String, messages: u32) {
    let publisher = RabbitPublisher::new(&client, &RabbitSettings::new(rabbit, SOURCES[0])).unwrap();
    let stream = StreamPublisher::new(&client, SOURCES[1], None).unwrap();
    for number in 0..messages {
        let message = OutgoingMessage::new(number.to_string()).id(number.to_string());
        while let Err(error) = publisher.publish("", SOURCES[0], &message).await {
            *LAST_TROUBLE.lock().unwrap() = format!("{number}: {error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        while let Err(error) = stream.publish(&message).await {
            *LAST_TROUBLE.lock().unwrap() = format!("{number}: {error}");
        }
        while !add_to_outbox(&postgres, &message).await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn add_to_outbox(postgres: &str, message: &OutgoingMessage) -> bool {
    match connect(postgres).await {
        Ok(client) => Outbox::default().add(&client, message).await.is_ok(),
        Err(_) => false,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_has_its_effect_once_whatever_dies() {
    let is_long = std::env::var_os("RESIL_SOAK").is_some();
    let campaign = match is_long {
        true => Campaign { messages: 6_700, faults: 120, broker_kills: 8, bound: Duration::from_secs(1_800) },
        false => Campaign { messages: 100, faults: 16, broker_kills: 1, bound: Duration::from_secs(100) },
    };
    campaign.run().await;
}
