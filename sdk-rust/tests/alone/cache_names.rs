//! Tags, names and what one call of a cache can say, on `memory://` with a driven clock.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use resil::cache::{CacheEntry, CacheSettings, Cached, CallOptions, Loaded};
use resil::clock::Clock;
use resil::{ConnectSettings, Failure};

use crate::drive::tasks::{drive_tasks as drive, settle};

const SECOND: Duration = Duration::from_secs(1);

async fn cache(store: &str, clock: &Clock, settings: CacheSettings) -> Cached {
    let client = ConnectSettings::new(format!("memory://{store}")).clock(clock.clone()).connect().await.unwrap();
    client.cached("user", settings).unwrap()
}

fn minute() -> CacheSettings {
    CacheSettings::new().ttl(60 * SECOND).load_timeout(10 * SECOND)
}

/// Gets `key`, or loads `value` with these tags.
async fn get(cache: &Cached, key: &str, value: &'static str, tags: &[&str]) -> String {
    let tags: Vec<String> = tags.iter().map(|tag| (*tag).to_owned()).collect();
    let loader = async move |_| Ok::<_, Infallible>(Some(CacheEntry::new(value)));
    let loaded = cache.get_with(key, CallOptions::new().tags(tags), loader).await.unwrap();
    String::from_utf8(loaded.into_value().unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn a_tag_expires_its_values_in_every_process() {
    let clock = Clock::driven();
    let here = cache("tags", &clock, minute().local_ttl(30 * SECOND)).await;
    let there = cache("tags", &clock, minute()).await;
    assert_eq!(get(&here, "1", "old", &["team:1"]).await, "old");
    assert_eq!(get(&here, "2", "old", &["team:2"]).await, "old");
    there.invalidate_tag("team:1").await.unwrap();
    assert_eq!(get(&here, "1", "new", &["team:1"]).await, "new");
    assert_eq!(get(&here, "2", "new", &["team:2"]).await, "old");
    there.clear().await.unwrap();
    assert_eq!(get(&here, "2", "new", &["team:2"]).await, "new");
    assert_eq!(get(&there, "1", "newer", &[]).await, "newer");
}

#[tokio::test]
async fn a_load_older_than_its_tags_invalidation_is_not_kept() {
    let clock = Clock::driven();
    let users = cache("", &clock, minute()).await;
    let loading = tokio::spawn({
        let (users, clock) = (users.clone(), clock.clone());
        async move {
            let loader = async move |_| {
                clock.sleep(SECOND).await;
                Ok::<_, Infallible>(Some(CacheEntry::new("old").tag("team")))
            };
            users.get_with("1", CallOptions::new(), loader).await
        }
    });
    settle().await;
    users.invalidate_tag("team").await.unwrap();
    drive(&clock, SECOND).await;
    assert!(loading.await.unwrap().is_ok(), "who began it gets it");
    assert_eq!(get(&users, "1", "new", &["team"]).await, "new");
}

#[tokio::test]
async fn a_loader_says_how_long_or_never_to_keep() {
    let clock = Clock::driven();
    let users = cache("", &clock, minute()).await;
    let load = |entry: CacheEntry| {
        users.get_with("1", CallOptions::new().ttl(30 * SECOND), async |_| Ok::<_, Infallible>(Some(entry)))
    };
    load(CacheEntry::new("not kept").do_not_keep()).await.unwrap();
    load(CacheEntry::new("five").ttl(5 * SECOND)).await.unwrap();
    clock.advance(4 * SECOND);
    assert_eq!(load(CacheEntry::new("no")).await.unwrap().into_value().unwrap(), "five");
    clock.advance(SECOND);
    load(CacheEntry::new("thirty")).await.unwrap();
    clock.advance(29 * SECOND);
    assert_eq!(load(CacheEntry::new("no")).await.unwrap().into_value().unwrap(), "thirty");
    clock.advance(SECOND);
    assert_eq!(load(CacheEntry::new("next")).await.unwrap().into_value().unwrap(), "next");
}

#[tokio::test]
async fn a_value_that_is_set_is_there_without_a_load() {
    let clock = Clock::driven();
    let here = cache("set", &clock, minute().local_ttl(30 * SECOND)).await;
    let there = cache("set", &clock, minute()).await;
    assert_eq!(get(&here, "1", "old", &[]).await, "old");
    there.set("1", "set", CallOptions::new().ttl(5 * SECOND).tags(vec!["team".to_owned()])).await.unwrap();
    assert_eq!(get(&here, "1", "no", &[]).await, "set");
    here.invalidate_tag("team").await.unwrap();
    assert_eq!(get(&there, "1", "loaded", &[]).await, "loaded");
}

#[tokio::test]
async fn many_are_asked_for_and_invalidated_at_once() {
    let clock = Clock::driven();
    let users = cache("", &clock, minute()).await;
    let loads = Arc::new(AtomicU32::new(0));
    let loader = {
        let loads = Arc::clone(&loads);
        move |key: String| {
            loads.fetch_add(1, SeqCst);
            async move { Ok::<_, Infallible>((key != "none").then(|| Bytes::from(format!("user {key}")))) }
        }
    };
    let got = users.get_many(["1", "2", "none", "1"], loader.clone()).await.unwrap();
    let texts: Vec<_> = got.into_iter().map(Loaded::into_value).collect();
    assert_eq!(texts, [Some("user 1".into()), Some("user 2".into()), None, Some("user 1".into())]);
    assert_eq!(loads.load(SeqCst), 3);
    users.get_many(["2", "1"], loader.clone()).await.unwrap();
    assert_eq!(loads.load(SeqCst), 3);
    assert_eq!(users.invalidate_many(["1", "2", "unknown"]).await.unwrap(), 2);
    users.get_many(["2", "1"], loader).await.unwrap();
    assert_eq!(loads.load(SeqCst), 5);
}

#[tokio::test]
async fn a_refresh_returns_its_load_while_others_see_stale() {
    let clock = Clock::driven();
    let users = cache("refresh", &clock, minute().stale(60 * SECOND)).await;
    let other = cache("refresh", &clock, minute().stale(60 * SECOND)).await;
    get(&users, "1", "old", &[]).await;
    let refreshing = tokio::spawn({
        let (users, clock) = (users.clone(), clock.clone());
        async move {
            let loader = async move |_| {
                clock.sleep(SECOND).await;
                Ok::<_, Infallible>(Some("new".into()))
            };
            users.refresh("1", loader).await
        }
    });
    settle().await;
    assert_eq!(get(&other, "1", "no", &[]).await, "old");
    drive(&clock, SECOND).await;
    assert_eq!(refreshing.await.unwrap().unwrap().into_value().unwrap(), "new");
    assert_eq!(get(&other, "1", "no", &[]).await, "new");
}

#[tokio::test]
async fn one_caller_loads_early_while_the_value_is_fresh() {
    let clock = Clock::driven();
    let users = cache("", &clock, minute().early(10)).await;
    get(&users, "1", "first", &[]).await;
    clock.advance(53 * SECOND);
    assert_eq!(get(&users, "1", "no", &[]).await, "first");
    clock.advance(2 * SECOND);
    let loaded = users.get("1", async |_| Ok::<_, Infallible>(Some("second".into()))).await.unwrap();
    assert_eq!((loaded.value().unwrap().as_ref(), loaded.is_stale()), (&b"first"[..], false), "nobody waits");
    settle().await;
    assert_eq!(get(&users, "1", "no", &[]).await, "second");
}

#[tokio::test]
async fn ttls_differ_by_their_jitter() {
    let clock = Clock::driven();
    let client = ConnectSettings::new("memory://").clock(clock.clone()).seed(7).connect().await.unwrap();
    let users = client.cached("user", minute().jitter(50)).unwrap();
    for key in 0..200 {
        get(&users, &key.to_string(), "old", &[]).await;
    }
    clock.advance(29 * SECOND);
    for key in 0..200 {
        assert_eq!(get(&users, &key.to_string(), "new", &[]).await, "old", "half of it is sure");
    }
    clock.advance(16 * SECOND);
    let mut anew = 0;
    for key in 0..200 {
        anew += u32::from(get(&users, &key.to_string(), "new", &[]).await == "new");
    }
    assert!((60..140).contains(&anew), "about half are over by three quarters of their ttl: {anew}");
}

#[tokio::test]
async fn after_the_soft_timeout_the_stale_value_is_served() {
    let clock = Clock::driven();
    let settings = minute().stale(600 * SECOND).soft_timeout(2 * SECOND);
    let users = cache("", &clock, settings).await;
    get(&users, "1", "first", &[]).await;
    for (takes, expected, is_stale) in [(1, "second", false), (5, "second", true)] {
        clock.advance(60 * SECOND);
        let getting = tokio::spawn({
            let (users, clock) = (users.clone(), clock.clone());
            async move {
                let loader = async move |_| {
                    clock.sleep(takes * SECOND).await;
                    Ok::<_, Infallible>(Some(if takes == 1 { "second" } else { "third" }.into()))
                };
                users.get("1", loader).await
            }
        });
        settle().await;
        drive(&clock, 2 * SECOND).await;
        let loaded = getting.await.unwrap().unwrap();
        assert_eq!((loaded.value().unwrap().as_ref(), loaded.is_stale()), (expected.as_bytes(), is_stale));
    }
    drive(&clock, 4 * SECOND).await;
    assert_eq!(get(&users, "1", "no", &[]).await, "third", "the load went on, and was kept");
}

#[tokio::test]
async fn while_there_is_a_stale_value_an_error_fails_nobody() {
    let clock = Clock::driven();
    let users = cache("", &clock, minute().stale(60 * SECOND).soft_timeout(5 * SECOND)).await;
    get(&users, "1", "old", &[]).await;
    clock.advance(61 * SECOND);
    let failing = users.get("1", async |_| Err::<Option<Bytes>, _>("down".to_owned())).await.unwrap();
    assert_eq!((failing.value().unwrap().as_ref(), failing.is_stale()), (&b"old"[..], true));
    clock.advance(61 * SECOND);
    let failed = users.get("1", async |_| Err::<Option<Bytes>, _>("down".to_owned())).await;
    assert!(matches!(failed, Err(Failure::Inner(_))), "{failed:?}");
}

#[tokio::test]
async fn what_cannot_be_is_refused_by_name() {
    let clock = Clock::driven();
    let users = cache("", &clock, minute()).await;
    let long = "x".repeat(257);
    for tag in ["", long.as_str()] {
        let refused = users.invalidate_tag(tag).await.unwrap_err().to_string();
        assert!(refused.contains("tags must have 1 to 256 bytes"), "{refused}");
    }
    let many = CallOptions::new().tags((0..17).map(|tag| tag.to_string()).collect());
    let refused = users.set("1", "v", many).await.unwrap_err().to_string();
    assert!(refused.contains("tags must be at most 16, got 17"), "{refused}");
    for (settings, field) in [(minute().early(100), "early"), (minute().jitter(51), "jitter")] {
        assert!(settings.validate().unwrap_err().to_string().contains(field));
    }
}
