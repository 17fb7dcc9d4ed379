//! What cached loads promise, on `memory://` with a driven clock. What a server says oddly is in the crate's own tests.

mod fresh;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use resil::cache::{CacheSettings, Cached, Loaded, OnLoadError, Versioned, VersionedCached};
use resil::clock::Clock;
use resil::testing::raw;
use resil::{Client, Code, ConnectSettings, Error, Failure};
use tokio::task::JoinHandle;

use crate::drive::tasks::{drive_tasks as drive, settle};
const SECOND: Duration = Duration::from_secs(1);

async fn client(store: &str, clock: &Clock) -> Client {
    ConnectSettings::new(format!("memory://{store}")).clock(clock.clone()).connect().await.unwrap()
}

async fn users(store: &str, clock: &Clock, tune: impl FnOnce(CacheSettings) -> CacheSettings) -> Cached {
    let settings = CacheSettings::new().ttl(60 * SECOND).load_timeout(10 * SECOND);
    client(store, clock).await.cached("user", tune(settings)).unwrap()
}

async fn versioned_users(clock: &Clock, stale: Duration) -> VersionedCached {
    let settings = CacheSettings::new().ttl(60 * SECOND).load_timeout(10 * SECOND).stale(stale);
    client("", clock).await.versioned_cached("user", settings).unwrap()
}

/// A slow source that counts how often it was asked.
#[derive(Clone)]
struct Source {
    clock: Clock,
    loads: Arc<AtomicU32>,
    takes: Duration,
}

impl Source {
    fn new(clock: &Clock, takes: Duration) -> Self {
        Self { clock: clock.clone(), loads: Arc::default(), takes }
    }

    fn loads(&self) -> u32 {
        self.loads.load(SeqCst)
    }

    async fn load(self) -> Result<Option<Bytes>, String> {
        let number = self.loads.fetch_add(1, SeqCst) + 1;
        self.clock.sleep(self.takes).await;
        Ok(Some(format!("load {number}").into()))
    }

    async fn fail(self) -> Result<Option<Bytes>, String> {
        self.loads.fetch_add(1, SeqCst);
        self.clock.sleep(self.takes).await;
        Err("the source is down".to_owned())
    }
}

type Got = Result<Loaded, Failure<Arc<String>>>;

async fn get(users: &Cached, source: &Source) -> Got {
    let source = source.clone();
    users.get("42", |_| source.load()).await
}

fn spawn_get(users: &Cached, source: &Source) -> JoinHandle<Got> {
    let (users, source) = (users.clone(), source.clone());
    tokio::spawn(async move { users.get("42", |_| source.load()).await })
}

fn spawn_fail(users: &Cached, source: &Source) -> JoinHandle<Got> {
    let (users, source) = (users.clone(), source.clone());
    tokio::spawn(async move { users.get("42", |_| source.fail()).await })
}

fn text(got: Got) -> String {
    String::from_utf8(got.unwrap().into_value().unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn ten_thousand_callers_are_one_load_and_share_its_bytes() {
    let clock = Clock::driven();
    let (users, source) = (users("", &clock, |settings| settings).await, Source::new(&clock, SECOND));
    let tasks: Vec<_> = (0..10_000).map(|_| spawn_get(&users, &source)).collect();
    // So many tasks take many turns until the load begins.
    for _ in 0..1_000 {
        settle().await;
    }
    assert_eq!(source.loads(), 1);
    drive(&clock, SECOND).await;
    let mut places = std::collections::HashSet::new();
    for task in tasks {
        let bytes = task.await.unwrap().unwrap().into_value().unwrap();
        assert_eq!(bytes, "load 1");
        places.insert(bytes.as_ptr() as usize);
    }
    assert_eq!((source.loads(), places.len()), (1, 1));
}

#[tokio::test]
async fn callers_in_many_processes_are_one_load() {
    let clock = Clock::driven();
    let source = Source::new(&clock, SECOND);
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let users = users("many", &clock, |settings| settings).await;
        tasks.extend((0..50).map(|_| spawn_get(&users, &source)));
    }
    drive(&clock, SECOND).await;
    for task in tasks {
        assert!(task.is_finished(), "followers are notified at once");
        assert_eq!(text(task.await.unwrap()), "load 1");
    }
    assert_eq!(source.loads(), 1);
}

#[tokio::test]
async fn a_caller_that_is_cancelled_ends_nobodys_load() {
    let clock = Clock::driven();
    let (users, source) = (users("", &clock, |settings| settings).await, Source::new(&clock, 2 * SECOND));
    let first = spawn_get(&users, &source);
    settle().await;
    let second = spawn_get(&users, &source);
    drive(&clock, SECOND).await;
    first.abort();
    drive(&clock, SECOND).await;
    assert_eq!(text(second.await.unwrap()), "load 1");
    // Even with nobody left, the load goes on and is there for the next one.
    users.invalidate("42").await.unwrap();
    let alone = spawn_get(&users, &source);
    drive(&clock, SECOND).await;
    alone.abort();
    drive(&clock, 2 * SECOND).await;
    assert_eq!((text(get(&users, &source).await), source.loads()), ("load 2".to_owned(), 2));
}

#[tokio::test]
async fn a_missing_thing_is_kept_for_its_own_time() {
    let clock = Clock::driven();
    let users = users("", &clock, |settings| settings.negative_ttl(5 * SECOND)).await;
    let nobody = async |_| Ok::<_, Infallible>(None);
    assert_eq!(users.get("43", nobody).await.unwrap(), Loaded::NotFound);
    clock.advance(4 * SECOND);
    let ada = async |_| Ok::<_, Infallible>(Some(Bytes::from("Ada")));
    assert_eq!(users.get("43", ada).await.unwrap(), Loaded::NotFound);
    clock.advance(2 * SECOND);
    assert_eq!(users.get("43", ada).await.unwrap().into_value().unwrap(), "Ada");
}

#[tokio::test]
async fn a_stale_value_is_served_while_one_loads_anew() {
    let clock = Clock::driven();
    let source = Source::new(&clock, SECOND);
    let build = async || users("stale", &clock, |settings| settings.stale(30 * SECOND)).await;
    let (here, there) = (build().await, build().await);
    let first = spawn_get(&here, &source);
    drive(&clock, SECOND).await;
    first.await.unwrap().unwrap();
    clock.advance(61 * SECOND);
    // Nobody waits: neither who leads, nor others here, nor others there.
    for users in [&here, &here, &there] {
        let got = get(users, &source).await.unwrap();
        assert!(got.is_stale());
        assert_eq!(got.into_value().unwrap(), "load 1");
    }
    assert_eq!(source.loads(), 2, "one loads anew");
    drive(&clock, SECOND).await;
    let got = get(&there, &source).await.unwrap();
    assert!(!got.is_stale());
    assert_eq!(got.into_value().unwrap(), "load 2");
}

#[tokio::test]
async fn a_stale_value_is_not_served_a_moment_longer() {
    let clock = Clock::driven();
    let source = Source::new(&clock, 5 * SECOND);
    let users = users("", &clock, |settings| settings.stale(3 * SECOND)).await;
    let first = spawn_get(&users, &source);
    drive(&clock, 5 * SECOND).await;
    first.await.unwrap().unwrap();
    clock.advance(60 * SECOND);
    assert!(get(&users, &source).await.unwrap().is_stale(), "it leads and is served");
    drive(&clock, 2 * SECOND).await;
    assert!(get(&users, &source).await.unwrap().is_stale());
    clock.advance(SECOND);
    let waits = spawn_get(&users, &source);
    settle().await;
    assert!(!waits.is_finished(), "its time is over while it is being loaded anew");
    drive(&clock, 2 * SECOND).await;
    assert_eq!((text(waits.await.unwrap()), source.loads()), ("load 2".to_owned(), 2));
}

#[tokio::test]
async fn a_failed_load_fails_all_who_wait_once() {
    let clock = Clock::driven();
    let source = Source::new(&clock, SECOND);
    let build = async || users("fails", &clock, |settings| settings.error_ttl(5 * SECOND)).await;
    let (here, there) = (build().await, build().await);
    let mut tasks: Vec<_> = (0..20).map(|_| spawn_fail(&here, &source)).collect();
    settle().await;
    let others: Vec<_> = (0..20).map(|_| spawn_fail(&there, &source)).collect();
    drive(&clock, SECOND).await;
    for task in tasks.drain(..) {
        assert_eq!(task.await.unwrap().unwrap_err(), Failure::Inner(Arc::new("the source is down".to_owned())));
    }
    for task in others {
        let Failure::Resil(Error::LoadFailed { message, .. }) = task.await.unwrap().unwrap_err() else { panic!() };
        assert_eq!(message, "the source is down");
    }
    clock.advance(3 * SECOND);
    assert_eq!(spawn_fail(&there, &source).await.unwrap().unwrap_err().code(), Some(Code::LoadFailed));
    assert_eq!(source.loads(), 1);
    clock.advance(3 * SECOND);
    let again = spawn_get(&there, &source);
    drive(&clock, SECOND).await;
    assert_eq!(text(again.await.unwrap()), "load 2");
}

#[tokio::test]
async fn a_stale_value_outlives_loads_that_fail() {
    let clock = Clock::driven();
    let source = Source::new(&clock, Duration::ZERO);
    let users = users("", &clock, |settings| settings.stale(60 * SECOND).error_ttl(5 * SECOND)).await;
    get(&users, &source).await.unwrap();
    clock.advance(61 * SECOND);
    assert!(spawn_fail(&users, &source).await.unwrap().unwrap().is_stale());
    settle().await;
    for _ in 0..10 {
        assert!(spawn_fail(&users, &source).await.unwrap().unwrap().is_stale());
        settle().await;
    }
    assert_eq!(source.loads(), 2, "the failed load is not tried by each in turn");
}

#[tokio::test]
async fn a_passed_on_error_keeps_its_words_to_itself() {
    let clock = Clock::driven();
    let source = Source::new(&clock, SECOND);
    let build =
        async || users("pass", &clock, |settings| settings.on_error(OnLoadError::Propagate).retry(2 * SECOND)).await;
    let (here, there) = (build().await, build().await);
    let failing = spawn_fail(&here, &source);
    settle().await;
    let waiting = spawn_get(&there, &source);
    drive(&clock, SECOND).await;
    assert!(matches!(failing.await.unwrap(), Err(Failure::Inner(_))));
    drive(&clock, SECOND).await;
    assert_eq!(source.loads(), 1, "not before the pause is over");
    drive(&clock, 2 * SECOND).await;
    assert_eq!(text(waiting.await.unwrap()), "load 2");
}

#[tokio::test]
async fn a_loader_that_panics_fails_and_others_may_load() {
    let clock = Clock::driven();
    let source = Source::new(&clock, Duration::ZERO);
    let build = async || users("panics", &clock, |settings| settings.retry(Duration::ZERO)).await;
    let (here, there) = (build().await, build().await);
    let panicking = |users: &Cached| {
        let (users, clock) = (users.clone(), clock.clone());
        tokio::spawn(async move {
            let loader = async move |_| -> Result<Option<Bytes>, String> {
                clock.sleep(SECOND).await;
                panic!("out of ink")
            };
            users.get("42", loader).await
        })
    };
    let tasks = [panicking(&here), panicking(&here)];
    settle().await;
    let other = spawn_get(&there, &source);
    drive(&clock, SECOND).await;
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap_err(), Failure::Resil(Error::Crashed("out of ink".to_owned())));
    }
    assert_eq!(text(other.await.unwrap()), "load 1");
}

#[tokio::test]
async fn a_load_ends_with_its_timeout_and_another_leads() {
    let clock = Clock::driven();
    let (slow, quick) = (Source::new(&clock, 100 * SECOND), Source::new(&clock, Duration::ZERO));
    let here = users("slow", &clock, |settings| settings.retry(Duration::ZERO).load_timeout(3 * SECOND)).await;
    let there = users("slow", &clock, |settings| settings).await;
    let waiting = spawn_get(&here, &slow);
    settle().await;
    let next = spawn_get(&there, &quick);
    drive(&clock, 3 * SECOND).await;
    assert_eq!(waiting.await.unwrap().unwrap_err(), Failure::Resil(Error::Timeout { after: 3 * SECOND }));
    assert_eq!(text(next.await.unwrap()), "load 1");
}

#[tokio::test]
async fn a_load_longer_than_the_lease_keeps_it() {
    let clock = Clock::driven();
    let source = Source::new(&clock, 9 * SECOND);
    let build = async || users("keeps", &clock, |settings| settings.lease(2 * SECOND)).await;
    let (here, there) = (build().await, build().await);
    let tasks = [spawn_get(&here, &source), spawn_get(&there, &source)];
    drive(&clock, 9 * SECOND).await;
    for task in tasks {
        assert_eq!(text(task.await.unwrap()), "load 1");
    }
    assert_eq!(source.loads(), 1);
}

#[test]
fn a_process_that_dies_while_it_loads_fails_nobody() {
    let clock = Clock::driven();
    let source = Source::new(&clock, SECOND);
    let dying = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let living = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // The living process comes first to the store: its background task must not die.
    let there = living.block_on(async { users("dies", &clock, |settings| settings.lease(5 * SECOND)).await });
    dying.block_on(async {
        let here = users("dies", &clock, |settings| settings.lease(5 * SECOND)).await;
        drop(spawn_get(&here, &source));
        settle().await;
    });
    assert_eq!(source.loads(), 1);
    let waiting = {
        let _inside = living.enter();
        spawn_get(&there, &source)
    };
    living.block_on(settle());
    drop(dying);
    living.block_on(async {
        drive(&clock, 4 * SECOND).await;
        assert!(!waiting.is_finished(), "its lease of five seconds has to lapse");
        drive(&clock, 3 * SECOND).await;
        assert_eq!(text(waiting.await.unwrap()), "load 2");
    });
}

#[tokio::test]
async fn a_follower_that_waits_in_vain_is_notified() {
    let clock = Clock::driven();
    let client = client("vain", &clock).await;
    let users = client.cached("user", CacheSettings::new().load_timeout(3 * SECOND)).unwrap();
    let join = "RES.SFLIGHT JOIN resil:cache:user:{42} another 60s UNDER resil:cache:{user}";
    raw(&client, &join.split(' ').collect::<Vec<_>>()).await.unwrap();
    let waiting = spawn_get(&users, &Source::new(&clock, SECOND));
    drive(&clock, 2 * SECOND).await;
    assert!(!waiting.is_finished());
    drive(&clock, 2 * SECOND).await;
    assert_eq!(waiting.await.unwrap().unwrap_err().code(), Some(Code::Timeout));
}

#[tokio::test]
async fn a_ttl_of_zero_shares_the_load_and_keeps_nothing() {
    let clock = Clock::driven();
    let (users, source) =
        (users("", &clock, |settings| settings.ttl(Duration::ZERO)).await, Source::new(&clock, SECOND));
    let tasks = [spawn_get(&users, &source), spawn_get(&users, &source)];
    drive(&clock, SECOND).await;
    for task in tasks {
        assert_eq!(text(task.await.unwrap()), "load 1");
    }
    let again = spawn_get(&users, &source);
    drive(&clock, SECOND).await;
    assert_eq!(text(again.await.unwrap()), "load 2");
}

#[tokio::test]
async fn what_cannot_be_right_is_refused_by_name() {
    let client = client("", &Clock::driven()).await;
    let refusal = |settings: CacheSettings| client.cached("a", settings).unwrap_err().to_string();
    assert!(refusal(CacheSettings::new().ttl(Duration::MAX)).starts_with("ttl "));
    assert!(refusal(CacheSettings::new().stale(Duration::MAX)).starts_with("stale "));
    assert!(refusal(CacheSettings::new().lease(Duration::ZERO)).starts_with("lease "));
    assert!(refusal(CacheSettings::new().load_timeout(Duration::ZERO)).starts_with("loadTimeout "));
    assert!(refusal(CacheSettings::new().local_size(0)).starts_with("localSize "));
}
