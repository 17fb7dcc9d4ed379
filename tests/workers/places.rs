//! The sources, each with a way to send to it and to look at what is left.

use std::time::Duration;

use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;
use resil::Client;
use resil::dead_letters::{DeadLettersSettings, FailureNote, Letter};
use resil::worker::postgres::{Outbox, OutboxSettings, OutboxSource, connect};
use resil::worker::rabbit::{RabbitPublisher, RabbitSettings, RabbitSource};
use resil::worker::streams::{StreamPublisher, StreamSettings, StreamSource};
use resil::worker::{LedgerSource, OutgoingMessage, Source};
use resil_harness::{Postgres, RabbitMq, Relay};

use crate::scene::{LedgerServer, fresh_name, postgres, rabbit};

/// How long a crashed worker keeps its messages here.
pub const SILENT_FOR: Duration = Duration::from_secs(2);

pub trait Place: Sized + Send + Sync + 'static {
    type Source: Source;

    async fn new(ledger: &LedgerServer) -> Self;
    /// The name of the worker, and of its ledger.
    fn name(&self) -> &str;
    fn source(&self, client: &Client) -> Self::Source;
    async fn send(&self, message: OutgoingMessage);
    /// The network between the worker and the source.
    fn cut(&self, ledger: &LedgerServer);
    /// Of the connections that there are nothing passes any more.
    fn silence(&self, ledger: &LedgerServer);
    /// A worker that falls silent keeps its messages for so long, where the source can be notified.
    fn keep_for(&mut self, _silence: Duration) {}
    /// How many messages are there, in whatever state.
    async fn left(&self) -> usize;
    fn is_ledger() -> bool {
        false
    }
}

pub struct AtLedger {
    name: String,
    client: Client,
}

impl Place for AtLedger {
    type Source = LedgerSource;

    async fn new(ledger: &LedgerServer) -> Self {
        Self { name: fresh_name("ledger"), client: ledger.direct().await }
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn source(&self, client: &Client) -> LedgerSource {
        LedgerSource::new(client, &self.name).unwrap()
    }

    async fn send(&self, message: OutgoingMessage) {
        let ledger = self.client.dead_letters(&self.name, DeadLettersSettings::new()).unwrap();
        let mut letter = Letter::of(&self.name, &message.id).payload(message.payload.clone());
        letter.headers = message.headers.to_bytes();
        (letter.kind, letter.aggregate, letter.schema) = (message.kind, message.aggregate, message.schema);
        // As soon as the ledger gives anything out, and in this order.
        ledger.fail(&letter, FailureNote::new("sent").not_counted()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }

    fn cut(&self, ledger: &LedgerServer) {
        ledger.relay.cut();
    }

    fn silence(&self, ledger: &LedgerServer) {
        ledger.relay.freeze_those_there_are();
    }

    async fn left(&self) -> usize {
        let ledger = self.client.dead_letters(&self.name, DeadLettersSettings::new()).unwrap();
        ledger.info().await.unwrap().entries as usize
    }

    fn is_ledger() -> bool {
        true
    }
}

pub struct AtStream {
    name: String,
    client: Client,
    pub settings: StreamSettings,
    pub relay: Relay,
}

impl Place for AtStream {
    type Source = StreamSource;

    async fn new(ledger: &LedgerServer) -> Self {
        let name = fresh_name("stream");
        let relay = Relay::to(ledger.server.port());
        let url = format!("redis://127.0.0.1:{}/", relay.port());
        let settings = StreamSettings::new(&name).reclaim(SILENT_FOR).url(url).delete(true);
        Self { name, client: ledger.direct().await, settings, relay }
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn source(&self, client: &Client) -> StreamSource {
        StreamSource::new(client, self.settings.clone()).unwrap()
    }

    fn keep_for(&mut self, silence: Duration) {
        self.settings.reclaim = silence;
    }

    async fn send(&self, message: OutgoingMessage) {
        StreamPublisher::new(&self.client, &self.name, None).unwrap().publish(&message).await.unwrap();
    }

    fn cut(&self, _ledger: &LedgerServer) {
        self.relay.cut();
    }

    fn silence(&self, _ledger: &LedgerServer) {
        self.relay.freeze_those_there_are();
    }

    /// Those that were not deleted, as they are when they are acknowledged.
    async fn left(&self) -> usize {
        let url = format!("redis://127.0.0.1:{}/", self.relay.port());
        let client = redis::Client::open(url).unwrap();
        let name = self.name.clone();
        tokio::task::spawn_blocking(move || {
            redis::cmd("XLEN").arg(name).query::<usize>(&mut client.get_connection().unwrap()).unwrap()
        })
        .await
        .unwrap()
    }
}

pub struct AtRabbit {
    pub name: String,
    publisher: RabbitPublisher,
    pub settings: RabbitSettings,
    pub relay: Relay,
}

impl AtRabbit {
    pub async fn of(ledger: &LedgerServer, broker: &RabbitMq) -> Self {
        let (name, relay) = (fresh_name("queue"), Relay::to(broker.port()));
        // Silence is noticed after twice the heartbeat.
        let url = format!("{}?heartbeat=2", RabbitMq::url_at(relay.port()));
        let settings = RabbitSettings::new(url, &name).prefetch(2);
        let publisher = RabbitPublisher::new(&ledger.direct().await, &settings).unwrap();
        Self { name, publisher, settings, relay }
    }

    pub async fn channel(&self) -> (lapin::Connection, lapin::Channel) {
        let connection =
            lapin::Connection::connect(&self.settings.url, lapin::ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        (connection, channel)
    }
}

impl Place for AtRabbit {
    type Source = RabbitSource;

    async fn new(ledger: &LedgerServer) -> Self {
        let broker = tokio::task::spawn_blocking(rabbit).await.unwrap();
        Self::of(ledger, broker).await
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn source(&self, client: &Client) -> RabbitSource {
        RabbitSource::new(client, self.settings.clone()).unwrap()
    }

    /// There must be a queue first: a worker declares it.
    async fn send(&self, message: OutgoingMessage) {
        for _ in 0..100 {
            match self.publisher.publish("", &self.name, &message).await {
                Ok(()) => return,
                Err(resil::worker::PublishError::Unroutable { .. }) => {
                    tokio::time::sleep(Duration::from_millis(50)).await
                }
                Err(error) => panic!("{error}"),
            }
        }
        panic!("no queue {}", self.name);
    }

    fn cut(&self, _ledger: &LedgerServer) {
        self.relay.cut();
    }

    fn silence(&self, _ledger: &LedgerServer) {
        self.relay.freeze_those_there_are();
    }

    /// Those that are ready. Those that a consumer has are not counted, so ask when there is none.
    async fn left(&self) -> usize {
        let (_connection, channel) = self.channel().await;
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(self.name.as_str().into(), passive, FieldTable::default()).await.unwrap().message_count()
            as usize
    }
}

pub struct AtOutbox {
    name: String,
    outbox: Outbox,
    settings: OutboxSettings,
    pub relay: Relay,
}

impl Place for AtOutbox {
    type Source = OutboxSource;

    async fn new(_ledger: &LedgerServer) -> Self {
        let server = tokio::task::spawn_blocking(postgres).await.unwrap();
        let (name, relay) = (fresh_name("outbox"), Relay::to(server.port()));
        let outbox = Outbox::new(&name).unwrap();
        connect(&server.url()).await.unwrap().batch_execute(&outbox.migration()).await.unwrap();
        let settings = OutboxSettings::new(Postgres::url_at(relay.port())).outbox(outbox.clone()).claim(SILENT_FOR);
        Self { name, outbox, settings: settings.poll(Duration::from_millis(50)), relay }
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn source(&self, client: &Client) -> OutboxSource {
        OutboxSource::new(client, self.settings.clone()).unwrap()
    }

    fn keep_for(&mut self, silence: Duration) {
        self.settings.claim = silence;
    }

    async fn send(&self, message: OutgoingMessage) {
        let client = connect(&postgres().url()).await.unwrap();
        self.outbox.add(&client, &message).await.unwrap();
    }

    fn cut(&self, _ledger: &LedgerServer) {
        self.relay.cut();
    }

    fn silence(&self, _ledger: &LedgerServer) {
        self.relay.freeze_those_there_are();
    }

    async fn left(&self) -> usize {
        let client = connect(&postgres().url()).await.unwrap();
        let row = client.query_one(&format!("SELECT count(*) FROM {}", self.name), &[]).await.unwrap();
        row.get::<_, i64>(0) as usize
    }
}
