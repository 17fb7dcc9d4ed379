//! A bulkhead of ten places, all free.

use resil::policy::LocalBulkhead;
use tokio::sync::Semaphore;
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt};
use tower_resilience_bulkhead::BulkheadLayer;

use super::{call, service};
use crate::contest::{Bar, Contest};
use crate::row;

const PLACES: usize = 10;

pub fn contest() -> Contest {
    let bulkhead = LocalBulkhead::new("bench", PLACES as u32, 100).expect("valid");
    let semaphore = Semaphore::new(PLACES);
    let mut tower = ConcurrencyLimit::new(service(), PLACES);
    let mut resilience = BulkheadLayer::builder().max_concurrent_calls(PLACES).build().expect("valid").layer(service());
    Contest {
        name: "bulkhead",
        bar: Bar::NoSlowerThanBestPeer,
        rows: vec![
            row!(Measure, "the call alone", call()),
            row!(Ours, "LocalBulkhead", bulkhead.call(call)),
            row!(Peer, "tokio Semaphore, acquire", async {
                let _permit = semaphore.acquire().await;
                call().await
            }),
            row!(Peer, "tower ConcurrencyLimit", async { tower.ready().await?.call(1).await }),
            row!(Peer, "tower-resilience", async { resilience.ready().await?.call(1).await }),
        ],
    }
}
