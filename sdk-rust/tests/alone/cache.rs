//! What cached loads promise, on `memory://` with a driven clock. What a server says oddly is in the crate's own tests.

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
        assert!(task.is_finished(), "followers are told at once");
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
async fn that_there_is_no_such_thing_is_kept_for_its_own_time() {
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
async fn a_stale_value_is_served_at_once_within_its_time_while_one_loads_anew() {
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
async fn a_load_that_fails_fails_all_who_wait_once_and_nobody_tries_for_its_time() {
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
async fn an_error_that_is_passed_on_lets_another_process_try_after_a_while_and_tells_nobody_its_words() {
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
async fn a_loader_that_panics_is_an_error_and_others_may_load() {
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
async fn a_load_ends_with_its_own_timeout_and_the_next_one_leads() {
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
async fn what_was_loaded_before_an_invalidation_is_not_returned_to_who_began_after_it() {
    let clock = Clock::driven();
    let source = Source::new(&clock, 2 * SECOND);
    let (here, there) =
        (users("void", &clock, |settings| settings).await, users("void", &clock, |settings| settings).await);
    // In the same process: the new caller does not join the old flight.
    let before = spawn_get(&here, &source);
    drive(&clock, SECOND).await;
    assert!(here.invalidate("42").await.unwrap());
    let after = spawn_get(&here, &source);
    drive(&clock, SECOND).await;
    assert_eq!(text(before.await.unwrap()), "load 1");
    assert!(!after.is_finished());
    drive(&clock, SECOND).await;
    assert_eq!(text(after.await.unwrap()), "load 2");
    assert_eq!(text(get(&here, &source).await), "load 2", "the void load was not kept");
    // By another process: this one does not know yet, and lets callers join; they are not given what they joined.
    here.invalidate("42").await.unwrap();
    let before = spawn_get(&here, &source);
    drive(&clock, SECOND).await;
    assert!(there.invalidate("42").await.unwrap());
    let after = spawn_get(&here, &source);
    drive(&clock, SECOND).await;
    assert_eq!(text(before.await.unwrap()), "load 3", "it began before");
    assert!(!after.is_finished());
    drive(&clock, 2 * SECOND).await;
    assert_eq!(text(after.await.unwrap()), "load 4");
    assert_eq!(source.loads(), 4);
}

#[tokio::test]
async fn a_soft_invalidation_leaves_the_value_as_a_stale_one() {
    let clock = Clock::driven();
    let source = Source::new(&clock, Duration::ZERO);
    let users = users("", &clock, |settings| settings.stale(30 * SECOND)).await;
    get(&users, &source).await.unwrap();
    assert!(users.invalidate_soft("42").await.unwrap());
    assert!(get(&users, &source).await.unwrap().is_stale());
    settle().await;
    assert_eq!(text(get(&users, &source).await), "load 2");
    assert!(!users.invalidate("nobody").await.unwrap());
}

#[tokio::test]
async fn events_invalidate_what_they_name() {
    let clock = Clock::driven();
    let source = Source::new(&clock, Duration::ZERO);
    let users = users("", &clock, |settings| settings).await;
    get(&users, &source).await.unwrap();
    let task = users.invalidate_on(futures_util::stream::iter(["41".to_owned(), "42".to_owned()]));
    assert_eq!(task.await.unwrap(), 2);
    assert_eq!(text(get(&users, &source).await), "load 2");
}

#[tokio::test]
async fn the_local_tier_asks_nobody_for_its_time_and_hears_what_others_invalidate() {
    let clock = Clock::driven();
    let source = Source::new(&clock, Duration::ZERO);
    let here = users("tier", &clock, |settings| settings.local_ttl(5 * SECOND)).await;
    assert_eq!(text(get(&here, &source).await), "load 1");
    raw(&client("tier", &clock).await, &["RES.SFLIGHT", "INVALIDATE", "resil:cache:user:{42}"]).await.unwrap();
    clock.advance(4 * SECOND);
    let Loaded::Found { value, age, stale } = get(&here, &source).await.unwrap() else { panic!() };
    assert_eq!((&value[..], age, stale), (&b"load 1"[..], Some(4 * SECOND), false));
    clock.advance(SECOND);
    assert_eq!(text(get(&here, &source).await), "load 2");
    for (cache, expected) in [(&here, "load 3"), (&users("tier", &clock, |settings| settings).await, "load 4")] {
        cache.invalidate("42").await.unwrap();
        assert_eq!(text(get(&here, &source).await), expected, "what another process invalidates is heard, too");
    }
}

#[tokio::test]
async fn two_handles_of_one_name_share_their_loads_and_their_local_tier() {
    let clock = Clock::driven();
    let (client, source) = (client("handles", &clock).await, Source::new(&clock, SECOND));
    let handle = |local| client.cached("user", CacheSettings::new().ttl(60 * SECOND).local_ttl(local)).unwrap();
    let gets: Vec<_> = (0..20).map(|_| spawn_get(&handle(5 * SECOND), &source)).collect();
    drive(&clock, SECOND).await;
    for got in gets {
        assert_eq!(text(got.await.unwrap()), "load 1");
    }
    let (here, there, careful) = (handle(5 * SECOND), handle(5 * SECOND), handle(Duration::ZERO));
    assert_eq!(text(get(&here, &source).await), "load 1");
    there.invalidate("42").await.unwrap();
    let again = spawn_get(&here, &source);
    drive(&clock, SECOND).await;
    assert_eq!(text(again.await.unwrap()), "load 2", "what one handle invalidates no other serves");
    let elsewhere = users("handles", &clock, |settings| settings).await;
    elsewhere.invalidate("42").await.unwrap();
    let asked = spawn_get(&careful, &source);
    drive(&clock, SECOND).await;
    assert_eq!(text(asked.await.unwrap()), "load 3", "what another process invalidates nobody serves");
}

#[tokio::test]
async fn the_local_tier_never_outlives_what_the_server_calls_fresh() {
    let clock = Clock::driven();
    let source = Source::new(&clock, Duration::ZERO);
    let build = async || users("fresh", &clock, |settings| settings.local_ttl(50 * SECOND)).await;
    let (here, there) = (build().await, build().await);
    get(&here, &source).await.unwrap();
    clock.advance(40 * SECOND);
    assert_eq!(text(get(&there, &source).await), "load 1");
    clock.advance(21 * SECOND);
    assert_eq!(text(get(&there, &source).await), "load 2", "twenty of its fifty seconds were left");
}

#[tokio::test]
async fn json_is_written_read_and_loaded_anew_when_it_cannot_be_read() {
    let clock = Clock::driven();
    let client = client("json", &clock).await;
    let users = client.cached("user", CacheSettings::new()).unwrap();
    let loaded = users.get_json("42", async |_| Ok::<_, Infallible>(Some(("Ada".to_owned(), 36)))).await.unwrap();
    assert_eq!(loaded.into_value(), Some(("Ada".to_owned(), 36)));
    let kept = users.get_json("42", async |_| Ok::<_, Infallible>(None::<(String, u32)>)).await.unwrap();
    assert_eq!(kept.into_value(), Some(("Ada".to_owned(), 36)));
    // A newer version of the program expects something else.
    let anew = users.get_json("42", async |_| Ok::<_, Infallible>(Some(vec![1, 2]))).await.unwrap();
    assert_eq!(anew.into_value(), Some(vec![1, 2]));
}

#[tokio::test]
async fn callers_with_other_types_of_errors_get_its_words() {
    let clock = Clock::driven();
    let (users, source) = (users("", &clock, |settings| settings).await, Source::new(&clock, SECOND));
    let first = spawn_fail(&users, &source);
    settle().await;
    let other = tokio::spawn({
        let users = users.clone();
        async move { users.get("42", async |_| Ok::<_, Infallible>(None)).await }
    });
    drive(&clock, SECOND).await;
    assert!(matches!(first.await.unwrap(), Err(Failure::Inner(_))));
    assert_eq!(other.await.unwrap().unwrap_err().to_string(), "loading user failed: the source is down");
}

#[tokio::test]
async fn who_knows_a_version_gets_it_or_a_newer_one() {
    let clock = Clock::driven();
    let users = versioned_users(&clock, Duration::ZERO).await;
    let load =
        |version| move |_: String| async move { Ok::<_, String>(Some(Versioned { version, bytes: "x".into() })) };
    let version = |got: Loaded<Versioned>| got.into_value().unwrap().version;
    assert_eq!(version(users.get("42", load(5)).await.unwrap()), 5);
    assert_eq!(version(users.get_at_least("42", 5, load(9)).await.unwrap()), 5, "what is cached will do");
    assert_eq!(version(users.get_at_least("42", 6, load(6)).await.unwrap()), 6, "what is older is loaded anew");
    let lags = users.get_at_least("42", 8, load(7)).await.unwrap_err();
    assert_eq!(lags.code(), Some(Code::LoadFailed));
    assert_eq!(version(users.get("42", load(8)).await.unwrap()), 8, "what was known to be out of date was not kept");
}

#[tokio::test]
async fn a_source_that_lags_does_not_push_out_a_newer_version() {
    let clock = Clock::driven();
    let users = versioned_users(&clock, 60 * SECOND).await;
    let load =
        |version| move |_: String| async move { Ok::<_, String>(Some(Versioned { version, bytes: "x".into() })) };
    users.get("42", load(7)).await.unwrap();
    clock.advance(61 * SECOND);
    for _ in 0..3 {
        let got = users.get("42", load(6)).await.unwrap();
        assert!(got.is_stale());
        assert_eq!(got.into_value().unwrap().version, 7);
        drive(&clock, 2 * SECOND).await;
    }
    assert_eq!(users.get("42", load(8)).await.unwrap().into_value().unwrap().version, 7);
    settle().await;
    assert_eq!(users.get("42", load(9)).await.unwrap().into_value().unwrap().version, 8);
}

#[tokio::test]
async fn a_follower_that_waits_in_vain_is_told_so() {
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
