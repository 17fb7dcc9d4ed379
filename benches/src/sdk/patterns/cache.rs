//! A cached load that is a hit. Ours with its local tier, which is what the peers are: a map in this process; and without it, which
//! asks the machine that stands for the server.

use std::convert::Infallible;
use std::time::Duration;

use resil::cache::CacheSettings;
use resil::cache::Cached;

use super::memory;
use crate::contest::{Bar, Contest};
use crate::row;

const TTL: Duration = Duration::from_secs(3_600);

fn get(cached: &Cached) -> impl Future<Output = Result<resil::cache::Loaded, impl std::fmt::Debug>> {
    cached.get("42", async |_key| Ok::<_, Infallible>(Some("Ada".into())))
}

pub fn contest() -> Contest {
    let with_tier = memory().cached("user", CacheSettings::new().ttl(TTL).local_ttl(TTL)).expect("valid");
    let without = memory().cached("user", CacheSettings::new().ttl(TTL)).expect("valid");
    let moka: moka::future::Cache<String, u64> =
        moka::future::Cache::builder().max_capacity(1_024).time_to_live(TTL).build();
    let quick: quick_cache::sync::Cache<String, u64> = quick_cache::sync::Cache::new(1_024);
    Contest {
        name: "cached load, a hit",
        bar: Bar::NoSlowerThanBestPeer,
        rows: vec![
            row!(Ours, "Cached, local tier", get(&with_tier)),
            row!(Measure, "Cached, no local tier", get(&without)),
            row!(Peer, "moka, time to live", async { Ok::<_, ()>(moka.get_with_by_ref("42", async { 1 }).await) }),
            row!(Measure, "quick_cache, no time to live", quick.get_or_insert_async("42", async { Ok::<u64, ()>(1) })),
        ],
    }
}
