//! A message that kills its worker dies alone: it stops, and those beside it are handled.
//!
//! The worker is a process of its own, which the message kills: this test binary again, as the test `a_process_that_is_killed`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use resil::ConnectSettings;
use resil::dead_letters::{
    ClassChange, DeadLettersSettings, DeathReason, FailureNote, LedgerChange, Letter, LetterFilter,
};
use resil::worker::postgres::{Outbox, OutboxSettings, OutboxSource, connect};
use resil::worker::rabbit::{RabbitPublisher, RabbitSettings, RabbitSource};
use resil::worker::streams::{StreamPublisher, StreamSettings, StreamSource};
use resil::worker::{LedgerSource, OutgoingMessage, PublishError, Source, WorkerSettings};

use crate::scene::{LedgerServer, fresh_name, postgres, rabbit};

const KILLER: &str = "killer";
const INNOCENTS: usize = 12;
const BOUND: Duration = Duration::from_secs(90);
const SILENT_FOR: Duration = Duration::from_secs(1);

fn note(journal: &Path, line: &str) {
    let mut file = fs::OpenOptions::new().append(true).create(true).open(journal).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

async fn work(client: &resil::Client, name: &str, source: impl Source, journal: PathBuf) {
    let worker = client.worker(name, WorkerSettings::new()).unwrap();
    let handled = worker.run(source, move |message| {
        let journal = journal.clone();
        async move {
            let payload = String::from_utf8_lossy(message.payload()).into_owned();
            note(&journal, &format!("+{payload}"));
            if payload == KILLER {
                tokio::time::sleep(Duration::from_millis(50)).await;
                std::process::abort();
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
            note(&journal, &format!("-{payload}"));
            Ok(())
        }
    });
    handled.await.unwrap();
}

/// Not a test: what the message kills.
#[test]
#[ignore = "run by the tests here, as a process of its own"]
fn a_process_that_is_killed() {
    let said = |name: &str| std::env::var(name).ok();
    let (Some(redis), Some(url), Some(kind), Some(name), Some(journal)) =
        (said("CRASH_REDIS"), said("CRASH_URL"), said("CRASH_KIND"), said("CRASH_NAME"), said("CRASH_JOURNAL"))
    else {
        return;
    };
    let journal = PathBuf::from(journal);
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let client = ConnectSettings::new(&redis).connect().await.unwrap();
        match kind.as_str() {
            "ledger" => work(&client, &name, LedgerSource::new(&client, &name).unwrap(), journal).await,
            "stream" => {
                let settings = StreamSettings::new(&name).reclaim(SILENT_FOR);
                work(&client, &name, StreamSource::new(&client, settings).unwrap(), journal).await;
            }
            "rabbit" => {
                let settings = RabbitSettings::new(url, &name);
                work(&client, &name, RabbitSource::new(&client, settings).unwrap(), journal).await;
            }
            _ => {
                let settings = OutboxSettings::new(&url).outbox(Outbox::new(&name).unwrap());
                let settings = settings.claim(SILENT_FOR).poll(Duration::from_millis(50));
                work(&client, &name, OutboxSource::new(&client, settings).unwrap(), journal).await;
            }
        }
    });
}

/// The process, started again whenever it is dead.
struct MortalWorker {
    said: Vec<(&'static str, String)>,
    child: Child,
    deaths: u32,
}

impl MortalWorker {
    fn spawn(said: &[(&'static str, String)]) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crashing::a_process_that_is_killed", "--ignored", "--test-threads=1"])
            .envs(said.iter().map(|(name, text)| (*name, text.as_str())))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn look(&mut self) {
        if self.child.try_wait().unwrap().is_some() {
            self.child = Self::spawn(&self.said);
            self.deaths += 1;
        }
    }
}

impl Drop for MortalWorker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn a_message_that_kills_its_worker_dies_alone(kind: &str) {
    let server = LedgerServer::start();
    let name = fresh_name("crash");
    let client = server.direct().await;
    let ledger = client.dead_letters(&name, DeadLettersSettings::new().actor("test")).unwrap();
    let quick = ClassChange::default().base(Duration::from_millis(100)).cap(Duration::from_millis(500));
    ledger.configure(&LedgerChange::new().transient(quick)).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    note(&journal, "begin");
    let url = match kind {
        "rabbit" => tokio::task::spawn_blocking(|| rabbit().url()).await.unwrap(),
        "outbox" => tokio::task::spawn_blocking(|| postgres().url()).await.unwrap(),
        _ => "-".to_owned(),
    };
    let outbox = Outbox::new(&name).unwrap();
    if kind == "outbox" {
        connect(&url).await.unwrap().batch_execute(&outbox.migration()).await.unwrap();
    }
    let messages: Vec<String> =
        std::iter::once(KILLER.to_owned()).chain((0..INNOCENTS).map(|id| id.to_string())).collect();
    let send_all = async {
        let message = |text: &String| OutgoingMessage::new(text.clone()).id(text.clone());
        for text in &messages {
            match kind {
                "ledger" => {
                    let letter = Letter::of(&name, text).payload(text.clone());
                    ledger.fail(&letter, FailureNote::new("sent").not_counted()).await.map(drop).unwrap();
                }
                "stream" => {
                    StreamPublisher::new(&client, &name, None).unwrap().publish(&message(text)).await.unwrap();
                }
                "outbox" => outbox.add(&connect(&url).await.unwrap(), &message(text)).await.unwrap(),
                _ => {}
            }
        }
    };
    send_all.await;
    let said = vec![
        ("CRASH_REDIS", format!("redis://127.0.0.1:{}/", server.server.port())),
        ("CRASH_URL", url.clone()),
        ("CRASH_KIND", kind.to_owned()),
        ("CRASH_NAME", name.clone()),
        ("CRASH_JOURNAL", journal.to_string_lossy().into_owned()),
    ];
    let mut worker = MortalWorker { child: MortalWorker::spawn(&said), said, deaths: 0 };
    if kind == "rabbit" {
        let publisher = RabbitPublisher::new(&client, &RabbitSettings::new(&url, &name)).unwrap();
        for text in &messages {
            let message = OutgoingMessage::new(text.clone()).id(text.clone());
            // Its worker declares the queue.
            while let Err(error) = publisher.publish("", &name, &message).await {
                assert!(matches!(error, PublishError::Unroutable { .. }), "{error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    let until = Instant::now() + BOUND;
    let lines = loop {
        worker.look();
        let lines = fs::read_to_string(&journal).unwrap();
        let ended = (0..INNOCENTS).filter(|id| lines.lines().any(|line| line == format!("-{id}"))).count();
        let info = ledger.info().await.unwrap();
        if ended == INNOCENTS && info.dead >= 1 && info.waiting + info.taken == 0 {
            break lines;
        }
        let dead = ledger.list(&LetterFilter::new()).await.unwrap();
        assert!(
            Instant::now() < until,
            "{kind}: {} deaths, {ended} ended, {info:?}: {:?}\n{lines}",
            worker.deaths,
            dead.letters
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    println!("{kind}: {} deaths\n{}", worker.deaths, lines.replace('\n', " "));
    assert_eq!(ledger.info().await.unwrap().dead, 1, "{lines}");
    let killer = ledger.get(&format!("{name}/{KILLER}")).await.unwrap().unwrap();
    assert_eq!(killer.reason, Some(DeathReason::Crash), "{killer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledgers_message_that_kills_its_worker_dies_alone() {
    a_message_that_kills_its_worker_dies_alone("ledger").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_streams_message_that_kills_its_worker_dies_alone() {
    a_message_that_kills_its_worker_dies_alone("stream").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_of_rabbitmq_that_kills_its_worker_dies_alone() {
    a_message_that_kills_its_worker_dies_alone("rabbit").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outboxs_message_that_kills_its_worker_dies_alone() {
    a_message_that_kills_its_worker_dies_alone("outbox").await;
}
