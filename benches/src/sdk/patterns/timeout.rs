//! A timeout of one second around a call that is ready, and around one that waits once.

use std::time::Duration;

use resil::policy::Timeout;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_resilience_timelimiter::TimeLimiterLayer;

use super::{Reply, call, service};
use crate::contest::{Bar, Contest};
use crate::row;

const AFTER: Duration = Duration::from_secs(1);

pub fn ready() -> Contest {
    let timeout = Timeout::attempt(AFTER).expect("valid");
    let mut tower = tower::timeout::Timeout::new(service(), AFTER);
    let mut resilience = TimeLimiterLayer::builder().timeout_duration(AFTER).build().layer(service());
    Contest {
        name: "timeout, a call that is ready",
        bar: Bar::NoSlowerThanBestPeer,
        rows: vec![
            row!(Measure, "the call alone", call()),
            row!(Ours, "Timeout", timeout.call(call)),
            row!(Peer, "tokio::time::timeout", async { tokio::time::timeout(AFTER, call()).await.expect("in time") }),
            row!(Peer, "tower", async { tower.ready().await?.call(1).await }),
            row!(Peer, "tower-resilience", async { resilience.ready().await?.call(1).await }),
        ],
    }
}

async fn late() -> Reply {
    tokio::task::yield_now().await;
    call().await
}

pub fn one_wait() -> Contest {
    let timeout = Timeout::attempt(AFTER).expect("valid");
    let mut tower = tower::timeout::Timeout::new(service_fn(|_: u64| late()), AFTER);
    let mut resilience = TimeLimiterLayer::builder().timeout_duration(AFTER).build().layer(service_fn(|_: u64| late()));
    Contest {
        name: "timeout, a call that waits once",
        bar: Bar::NoSlowerThanBestPeer,
        rows: vec![
            row!(Measure, "the call alone", late()),
            row!(Ours, "Timeout", timeout.call(late)),
            row!(Peer, "tokio::time::timeout", async { tokio::time::timeout(AFTER, late()).await.expect("in time") }),
            row!(Peer, "tower", async { tower.ready().await?.call(1).await }),
            row!(Peer, "tower-resilience", async { resilience.ready().await?.call(1).await }),
        ],
    }
}
