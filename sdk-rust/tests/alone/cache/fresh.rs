//! What is served after a value changed: invalidations, the local tier, versions.

use super::*;

#[tokio::test]
async fn a_call_after_an_invalidation_never_gets_an_earlier_load() {
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
async fn the_local_tier_asks_nobody_and_hears_of_invalidations() {
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
async fn handles_of_one_name_share_loads_and_local_tier() {
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
async fn unreadable_json_is_loaded_anew() {
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
async fn a_caller_with_a_version_gets_it_or_newer() {
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
async fn a_lagging_source_does_not_displace_a_newer_version() {
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
