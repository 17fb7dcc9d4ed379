//! What the SDK makes of each thing a server can say, and of its silence. A script plays the server.

use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use resil_core::lock::Reason;
use resil_wire::command::Reply;
use resil_wire::single_flight::{Joined, Published, SeenMany};
use tokio::sync::Semaphore;
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
        replies: impl IntoIterator<Item = Result<Reply, Error>>,
        tune: impl FnOnce(CacheSettings) -> CacheSettings,
    ) -> Self {
        let (clock, script, client) = scripted(replies);
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

    /// From now on each reply is on its way until there is a permit for it.
    fn holds_replies_back(&self) -> Arc<Semaphore> {
        let deliveries = Arc::new(Semaphore::new(0));
        self.script.lines.lock().deliveries = Some(Arc::clone(&deliveries));
        deliveries
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
    let deliveries = scene.holds_replies_back();
    let tasks: Vec<_> = (0..10_000).map(|_| scene.spawn_get()).collect();
    for _ in 0..1_000 {
        settle().await;
    }
    deliveries.add_permits(1);
    for task in tasks {
        assert_eq!(text(task.await.unwrap()), "known");
    }
    assert_eq!(scene.names(), ["JOIN"]);
    assert_eq!(scene.loads.load(SeqCst), 0);
}

fn newer() -> Result<Reply, Error> {
    let bytes: Arc<[u8]> = Arc::from(&b"newer"[..]);
    Ok(Reply::Joined(Joined::Value { bytes, age_ms: 1, fresh_ms: 1_000 }))
}

async fn never(_: String) -> Result<Option<Bytes>, String> {
    Err("it is cached".to_owned())
}

/// A get that went as far as it could, and is not looked at any more.
fn begun(users: &Cached) -> Pin<Box<dyn Future<Output = Got> + Send>> {
    let users = users.clone();
    let mut getting = async move { users.get("42", never).await }.boxed();
    assert!((&mut getting).now_or_never().is_none());
    getting
}

/// Lost before: the lead lay where nobody looked, and no other process could load.
#[tokio::test]
async fn a_get_that_is_not_polled_keeps_no_lead() {
    let scene = Scene::new([lead(), published()], |builder| builder);
    let deliveries = scene.holds_replies_back();
    let (clock, loads) = (scene.clock.clone(), Arc::clone(&scene.loads));
    let loader = move |_| async move {
        loads.fetch_add(1, SeqCst);
        clock.sleep(SECOND).await;
        Ok::<_, String>(Some(Bytes::from_static(b"loaded")))
    };
    let mut getting = scene.users.get("42", loader).boxed();
    assert!((&mut getting).now_or_never().is_none());
    deliveries.add_permits(2);
    scene.drive(2 * SECOND).await;
    assert_eq!(scene.names(), ["JOIN", "PUBLISH"]);
    assert_eq!(scene.loads.load(SeqCst), 1);
    assert_eq!(text(getting.await), "loaded");
}

#[tokio::test]
async fn a_hit_needs_nobody_but_its_caller() {
    let scene = Scene::new([value()], |builder| builder);
    assert_eq!(text(scene.users.get("42", never).now_or_never().unwrap()), "known");
}

#[tokio::test]
async fn any_caller_that_waits_keeps_a_question_going() {
    let scene = Scene::new([value()], |builder| builder);
    let deliveries = scene.holds_replies_back();
    let first = begun(&scene.users);
    let second = scene.spawn_get();
    settle().await;
    deliveries.add_permits(1);
    assert_eq!(text(second.await.unwrap()), "known");
    assert_eq!(text(first.await), "known");
    assert_eq!(scene.names(), ["JOIN"]);
}

#[tokio::test]
async fn a_reply_from_before_a_caller_is_not_its() {
    let scene = Scene::new([value(), newer()], |builder| builder);
    let deliveries = scene.holds_replies_back();
    let first = begun(&scene.users);
    deliveries.add_permits(2);
    assert_eq!(text(scene.users.get("42", never).await), "newer");
    assert_eq!(text(first.await), "known");
    assert_eq!(scene.names(), ["JOIN", "JOIN"]);
}

#[tokio::test]
async fn a_question_that_all_callers_left_goes_on() {
    let scene = Scene::new([lead(), lead(), published()], |builder| builder);
    let deliveries = scene.holds_replies_back();
    let first = scene.spawn_get();
    settle().await;
    first.abort();
    deliveries.add_permits(3);
    scene.drive(2 * SECOND).await;
    let asked = scene.asked();
    assert_eq!(scene.names(), ["JOIN", "JOIN", "PUBLISH"]);
    assert!(asked.iter().all(|(_, token)| *token == asked[0].1), "what was granted is used");
    assert_eq!(scene.loads.load(SeqCst), 1);
}

#[test]
fn a_question_outlives_the_runtime_of_its_caller() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let scene = {
        let _inside = second.enter();
        Scene::new([lead(), newer()], |builder| builder)
    };
    let deliveries = scene.holds_replies_back();
    let getting = {
        let _inside = first.enter();
        begun(&scene.users)
    };
    drop(first);
    deliveries.add_permits(2);
    let got = second.block_on(async { tokio::time::timeout(60 * SECOND, scene.users.get("42", never)).await });
    assert_eq!(text(got.expect("in time")), "newer", "who joined asks by itself");
    drop(getting);
}

#[tokio::test]
async fn an_error_a_binding_gives_up_stays_its_own() {
    for (gives_up, ending) in [(false, "PUBLISH"), (true, "ABANDON")] {
        let scene = Scene::new([lead()], |builder| builder);
        if gives_up {
            scene.users.0.gave_up.set(|error| error.is::<String>()).unwrap();
        }
        let failed = scene.users.get("42", never).await.unwrap_err();
        assert_eq!(failed, Failure::Inner(Arc::new("it is cached".to_owned())));
        assert_eq!(scene.names()[..2], ["JOIN", ending]);
    }
}

/// A thread that ended amid a load failed those who shared it.
#[tokio::test]
async fn callers_of_an_abandoned_load_load_by_themselves() {
    let scene = Scene::new([lead(), published(), lead(), published()], |builder| builder);
    scene.users.0.gave_up.set(|error| error.is::<String>()).unwrap();
    let deliveries = scene.holds_replies_back();
    let users = scene.users.clone();
    let first = tokio::spawn(async move { users.get("42", never).await });
    settle().await;
    let second = scene.spawn_get();
    settle().await;
    deliveries.add_permits(4);
    scene.drive(2 * SECOND).await;
    assert!(matches!(first.await.unwrap(), Err(Failure::Inner(_))));
    assert_eq!(text(second.await.unwrap()), "load 1");
    assert_eq!(scene.names(), ["JOIN", "ABANDON", "JOIN", "PUBLISH"]);
}

fn many(fresh_ms: i64) -> Result<Reply, Error> {
    let bytes: Arc<[u8]> = Arc::from(&b"known"[..]);
    let seen = Joined::Value { bytes, age_ms: 1_000 - fresh_ms, fresh_ms };
    Ok(Reply::SeenMany(SeenMany(vec![Some(seen.clone()), Some(seen)])))
}

#[tokio::test]
async fn what_is_invalidated_during_a_get_many_is_not_kept() {
    for is_invalidated in [false, true] {
        let scene = Scene::new([many(1_000), newer()], |builder| builder.local_ttl(60 * SECOND));
        let deliveries = scene.holds_replies_back();
        let users = scene.users.clone();
        let getting = tokio::spawn(async move { users.get_many(["42", "43"], never).await });
        settle().await;
        if is_invalidated {
            scene.users.0.table.hear(&Invalidated::Key(b"resil:cache:user:{42}".to_vec()));
        }
        deliveries.add_permits(2);
        assert!(getting.await.unwrap().unwrap().iter().all(Loaded::is_found));
        let wanted = if is_invalidated { "newer" } else { "known" };
        assert_eq!(text(scene.users.get("42", never).await), wanted);
    }
}

#[tokio::test]
async fn of_many_keys_one_loads_the_nearly_expired_early() {
    for (fresh_ms, asked) in [(102, vec!["MGET"]), (101, vec!["MGET", "JOIN", "JOIN"])] {
        let scene = Scene::new([many(fresh_ms), value(), value()], |builder| builder.early(10));
        assert_eq!(scene.users.get_many(["42", "43"], never).await.unwrap().len(), 2);
        assert_eq!(scene.names(), asked);
    }
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
async fn an_absent_server_fails_nobody_and_each_process_loads() {
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
async fn a_lost_reply_to_join_reuses_the_token() {
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
async fn a_value_the_server_refuses_is_returned_without_lead() {
    let refusal = Err(Error::InvalidArgument("VALUE can have at most 1 bytes".to_owned()));
    let scene = Scene::new([lead(), refusal, Ok(Reply::Abandoned(None))], |builder| builder);
    assert_eq!(text(scene.get().await), "load 1");
    assert_eq!(scene.names(), ["JOIN", "PUBLISH", "ABANDON"]);
}

#[tokio::test]
async fn a_load_that_lost_its_lead_is_its_callers_alone() {
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
async fn a_caller_during_a_publish_asks_the_server() {
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
    let replies = [silence(), silence(), silence(), silence(), Ok(Reply::Number(1))];
    let scene = Scene::new(replies, |builder| builder);
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
