use std::convert::Infallible;
use std::sync::atomic::Ordering::SeqCst;

use super::*;
use crate::ConnectSettings;
use crate::cache::{CacheSettings, CallOptions, Invalidated};
use crate::clock::Clock;

const TTL: Duration = Duration::from_secs(3_600);

async fn kept(url: &str) -> (crate::Client, Cached) {
    let client = crate::connect(url).await.unwrap();
    let cached = client.cached("user", CacheSettings::new().ttl(TTL).local_ttl(TTL)).unwrap();
    cached.get("42", async |_| Ok::<_, Infallible>(Some("Ada".into()))).await.unwrap();
    (client, cached)
}

#[tokio::test]
async fn whatever_empties_the_tier_ends_the_epoch() {
    let (client, cached) = kept("memory://").await;
    let epoch = cached.epoch();
    let glance = cached.glance("42", &epoch).unwrap();
    assert_eq!((&*glance.bytes, glance.epoch, glance.left), (&b"Ada"[..], epoch.load(SeqCst), LEFT_MAX));
    assert_eq!(cached.glance("43", &epoch), None);
    let mut last = glance.epoch;
    let mut ended = |what: &str| {
        let now = epoch.load(SeqCst);
        assert_ne!(now, last, "{what}");
        last = now;
    };
    cached.invalidate("another").await.unwrap();
    ended("a key is invalidated");
    cached.invalidate_soft("42").await.unwrap();
    ended("a key is invalidated softly");
    cached.set("42", "Bob", CallOptions::new()).await.unwrap();
    ended("a key is set");
    cached.invalidate_tag("team").await.unwrap();
    ended("a tag is invalidated");
    cached.clear().await.unwrap();
    ended("all is cleared");
    let table = &cached.0.table;
    for what in
        [Invalidated::Key(b"resil:cache:user:{42}".to_vec()), Invalidated::Tag(b"team".to_vec()), Invalidated::All]
    {
        table.hear(&what);
        ended("it is heard of");
    }
    table.hears_no_more();
    ended("nothing is heard any more");
    table.begins_to_hear();
    ended("it is heard again");
    cached.get("42", async |_| Ok::<_, Infallible>(Some("Ada".into()))).await.unwrap();
    assert!(cached.glance("42", &epoch).is_some());
    client.shutdown(Duration::ZERO).await;
    ended("the client closes");
    assert_eq!(cached.glance("42", &epoch), None);
}

#[tokio::test]
async fn a_glance_says_how_long_it_may_be_kept() {
    let (client, _kept) = kept("memory://").await;
    let short = client.cached("user", CacheSettings::new().ttl(TTL).local_ttl(Duration::from_secs(5))).unwrap();
    let left = short.glance("42", &short.epoch()).unwrap().left;
    assert!(left <= Duration::from_secs(5) && left > Duration::from_secs(1), "{left:?}");
}

#[tokio::test]
async fn where_a_test_drives_the_clock_nothing_is_kept_outside() {
    let client = ConnectSettings::new("memory://").clock(Clock::driven()).connect().await.unwrap();
    let cached = client.cached("user", CacheSettings::new().ttl(TTL).local_ttl(TTL)).unwrap();
    cached.get("42", async |_| Ok::<_, Infallible>(Some("Ada".into()))).await.unwrap();
    assert_eq!(cached.glance("42", &cached.epoch()).unwrap().left, Duration::ZERO);
}
