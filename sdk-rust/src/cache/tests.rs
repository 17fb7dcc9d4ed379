//! What the SDK makes of each thing a server can say, and of its silence. A script plays the server.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use resil_core::lock::Reason;
use resil_wire::command::Reply;
use resil_wire::single_flight::{Joined, Published};
use tokio::task::JoinHandle;

use super::*;
use crate::backend::scripted::Scripted;
use crate::clock::Clock;
use crate::error::Code;
use crate::health::Away;
use crate::scripted_scene::{asked, drive, scripted, settle};

const SECOND: Duration = Duration::from_secs(1);

struct Scene {
    clock: Clock,
    script: Scripted,
    users: Cached,
    loads: Arc<AtomicU32>,
}

type Got = Result<Loaded, Failure<Arc<String>>>;

impl Scene {
    fn new(
        answers: impl IntoIterator<Item = Result<Reply, Error>>,
        tune: impl FnOnce(CacheSettings) -> CacheSettings,
    ) -> Self {
        let (clock, script, client) = scripted(answers);
        // A lease that outlasts the loads here: nothing is renewed meanwhile.
        let users = client.cached("user", tune(CacheSettings::new().lease(5 * SECOND))).unwrap();
        Self { clock, script, users, loads: Arc::default() }
    }

    /// The subcommand and the token of everything that was asked.
    fn asked(&self) -> Vec<(String, Vec<u8>)> {
        asked(&self.script)
    }

    fn names(&self) -> Vec<String> {
        self.asked().into_iter().map(|(name, _)| name).collect()
    }

    fn spawn_get(&self) -> JoinHandle<Got> {
        let (users, clock, loads) = (self.users.clone(), self.clock.clone(), Arc::clone(&self.loads));
        let loader = move |_| async move {
            let number = loads.fetch_add(1, SeqCst) + 1;
            clock.sleep(SECOND).await;
            Ok(Some(Bytes::from(format!("load {number}"))))
        };
        tokio::spawn(async move { users.get("42", loader).await })
    }

    async fn drive(&self, span: Duration) {
        drive(&self.clock, span).await;
    }

    async fn get(&self) -> Got {
        let getting = self.spawn_get();
        self.drive(2 * SECOND).await;
        assert!(getting.is_finished());
        getting.await.unwrap()
    }
}

fn value() -> Result<Reply, Error> {
    let bytes: Arc<[u8]> = Arc::from(&b"known"[..]);
    Ok(Reply::Joined(Joined::Value { bytes, age_ms: 1, fresh_ms: 1_000 }))
}

fn lead() -> Result<Reply, Error> {
    Ok(Reply::Joined(Joined::Lead { fence: 1, stale: None, waited_ms: 0 }))
}

fn busy() -> Result<Reply, Error> {
    Ok(Reply::Joined(Joined::Busy { remaining_ms: 1_000 }))
}

fn published() -> Result<Reply, Error> {
    Ok(Reply::Published(Published::Published { followers: 0 }))
}

fn silence() -> Result<Reply, Error> {
    Err(Error::BackendUnavailable("cut"))
}

fn text(got: Got) -> String {
    String::from_utf8(got.unwrap().into_value().unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn ten_thousand_callers_are_one_command() {
    let scene = Scene::new([value()], |builder| builder);
    let tasks: Vec<_> = (0..10_000).map(|_| scene.spawn_get()).collect();
    for task in tasks {
        assert_eq!(text(task.await.unwrap()), "known");
    }
    assert_eq!(scene.names(), ["JOIN"]);
    assert_eq!(scene.loads.load(SeqCst), 0);
}

#[tokio::test]
async fn ten_thousand_callers_of_a_miss_are_two_commands() {
    let scene = Scene::new([lead(), published()], |builder| builder);
    let tasks: Vec<_> = (0..10_000).map(|_| scene.spawn_get()).collect();
    // So many tasks take many turns until the load begins.
    for _ in 0..1_000 {
        settle().await;
    }
    assert_eq!(scene.loads.load(SeqCst), 1);
    scene.drive(SECOND).await;
    for task in tasks {
        assert_eq!(text(task.await.unwrap()), "load 1");
    }
    assert_eq!(scene.names(), ["JOIN", "PUBLISH"]);
}

#[tokio::test]
async fn a_server_that_is_away_fails_nobody_and_each_process_loads_once() {
    let scene = Scene::new([], |builder| builder);
    let tasks: Vec<_> = (0..100).map(|_| scene.spawn_get()).collect();
    scene.drive(SECOND).await;
    for task in tasks {
        assert_eq!(text(task.await.unwrap()), "load 1");
    }
    assert_eq!(scene.loads.load(SeqCst), 1);
}

#[tokio::test]
async fn open_lets_every_caller_load_while_the_server_is_away() {
    let scene = Scene::new([], |builder| builder.when_away(Away::Open));
    let tasks: Vec<_> = (0..10).map(|_| scene.spawn_get()).collect();
    scene.drive(SECOND).await;
    for task in tasks {
        assert!(task.await.unwrap().is_ok());
    }
    assert_eq!(scene.loads.load(SeqCst), 10);
}

#[tokio::test]
async fn closed_refuses_while_the_server_is_away() {
    let scene = Scene::new([], |builder| builder.when_away(Away::Closed));
    assert_eq!(scene.get().await.unwrap_err().code(), Some(Code::BackendUnavailable));
    assert_eq!(scene.loads.load(SeqCst), 0);
}

#[tokio::test]
async fn a_load_without_the_server_ends_with_its_timeout() {
    let scene = Scene::new([], |builder| builder.load_timeout(SECOND / 2));
    assert_eq!(scene.get().await.unwrap_err().code(), Some(Code::Timeout));
}

#[tokio::test]
async fn a_lost_reply_to_join_is_asked_for_with_the_same_token() {
    let scene = Scene::new([silence(), lead(), published()], |builder| builder);
    assert_eq!(text(scene.get().await), "load 1");
    let asked = scene.asked();
    assert_eq!(scene.names(), ["JOIN", "JOIN", "PUBLISH"]);
    assert!(asked.iter().all(|(_, token)| *token == asked[0].1));
}

#[tokio::test]
async fn a_wait_that_is_cut_off_is_taken_up_again() {
    let scene = Scene::new([busy(), silence(), value()], |builder| builder);
    assert_eq!(text(scene.get().await), "known");
    assert_eq!(scene.names(), ["JOIN", "JOIN", "JOIN"]);
}

#[tokio::test]
async fn a_lost_reply_to_publish_is_asked_for() {
    let scene = Scene::new([lead(), silence(), published()], |builder| builder);
    assert_eq!(text(scene.get().await), "load 1");
    assert_eq!(scene.names(), ["JOIN", "PUBLISH", "PUBLISH"]);
}

#[tokio::test]
async fn what_was_loaded_while_the_server_went_away_is_returned() {
    let scene = Scene::new([lead()], |builder| builder);
    let tasks: Vec<_> = (0..10).map(|_| scene.spawn_get()).collect();
    scene.drive(SECOND).await;
    for task in tasks {
        assert_eq!(text(task.await.unwrap()), "load 1");
    }
}

#[tokio::test]
async fn a_value_the_server_does_not_take_is_returned_and_the_lead_given_up() {
    let refusal = Err(Error::InvalidArgument("VALUE can have at most 1 bytes".to_owned()));
    let scene = Scene::new([lead(), refusal, Ok(Reply::Abandoned(None))], |builder| builder);
    assert_eq!(text(scene.get().await), "load 1");
    assert_eq!(scene.names(), ["JOIN", "PUBLISH", "ABANDON"]);
}

#[tokio::test]
async fn a_load_that_lost_its_lead_is_only_for_who_began_it() {
    let lost = Ok(Reply::Published(Published::Lost(Reason::Invalidated)));
    let scene = Scene::new([lead(), lost, value()], |builder| builder.local_ttl(60 * SECOND));
    let began = scene.spawn_get();
    settle().await;
    let joined: Vec<_> = (0..10).map(|_| scene.spawn_get()).collect();
    scene.drive(SECOND).await;
    assert_eq!(text(began.await.unwrap()), "load 1");
    for task in joined {
        assert_eq!(text(task.await.unwrap()), "known", "they asked anew, together");
    }
    assert_eq!(scene.names(), ["JOIN", "PUBLISH", "JOIN"]);
}

#[tokio::test]
async fn who_comes_while_a_load_is_being_published_asks_the_server() {
    let scene = Scene::new([lead(), published(), value()], |builder| builder);
    let began = scene.spawn_get();
    scene.drive(SECOND - SECOND / 10).await;
    // It lands within the same advance; nobody joins a flight that has left the table.
    scene.clock.advance(SECOND / 10);
    settle().await;
    assert_eq!(text(scene.spawn_get().await.unwrap()), "known");
    assert_eq!(text(began.await.unwrap()), "load 1");
}

#[tokio::test]
async fn events_are_insisted_on_while_the_server_is_away() {
    let answers = [silence(), silence(), silence(), silence(), Ok(Reply::Number(1))];
    let scene = Scene::new(answers, |builder| builder);
    let task = scene.users.invalidate_on(futures_util::stream::iter(["42".to_owned()]));
    scene.drive(SECOND).await;
    assert_eq!(task.await.unwrap(), 1);
    // But not beyond the life of what they invalidate.
    let task = scene.users.invalidate_on(futures_util::stream::iter(["42".to_owned()]));
    scene.drive(70 * SECOND).await;
    assert!(task.is_finished());
    assert_eq!(task.await.unwrap(), 0);
}

#[tokio::test]
async fn nothing_new_is_begun_when_closing() {
    let scene = Scene::new([value()], |builder| builder);
    scene.users.0.client.inner().closing.cancel();
    assert_eq!(scene.get().await.unwrap_err().code(), Some(Code::ShuttingDown));
}
