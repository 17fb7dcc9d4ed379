//! A rate limit that grants: one key that everybody asks for, and a thousand in turn.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::middleware::StateInformationMiddleware;
use governor::{Quota, RateLimiter};
use resil::limiter::{Limit, Limiter};
use tower::{Layer, Service, ServiceExt};
use tower_resilience_ratelimiter::RateLimiterLayer;

use super::{memory, service};
use crate::contest::{Bar, Contest};
use crate::row;

const PER_SECOND: u32 = 1_000_000_000;
const KEYS: usize = 1_000;

fn ours() -> Limiter {
    memory().limiter("api", Limit::per_second(PER_SECOND)).expect("valid")
}

fn quota() -> Quota {
    Quota::per_second(NonZeroU32::new(PER_SECOND).expect("not zero"))
}

fn keys() -> Vec<String> {
    (0..KEYS).map(|number| format!("user:{number:04}")).collect()
}

pub fn contests() -> Vec<Contest> {
    vec![one_key(), many_keys()]
}

fn one_key() -> Contest {
    let limiter = ours();
    let direct = RateLimiter::direct(quota());
    let keyed = RateLimiter::dashmap(quota());
    let telling = RateLimiter::dashmap(quota()).with_middleware::<StateInformationMiddleware>();
    let layer =
        RateLimiterLayer::builder().limit_for_period(PER_SECOND as usize).refresh_period(Duration::from_secs(1));
    let mut resilience = layer.build().expect("valid").layer(service());
    let key = "user:0001".to_owned();
    let (owned, checked) = (key.clone(), key.clone());
    Contest {
        name: "limiter, one key",
        bar: Bar::NoSlowerThanBestPeer,
        rows: vec![
            row!(Ours, "Limiter::check", limiter.check(&key)),
            row!(Measure, "governor, not keyed", std::future::ready(direct.check())),
            row!(Peer, "governor, keyed", std::future::ready(keyed.check_key(&owned))),
            row!(
                Peer,
                "governor, keyed, and what is left",
                std::future::ready(telling.check_key(&checked).map(|snapshot| snapshot.remaining_burst_capacity()))
            ),
            row!(Measure, "tower-resilience, not keyed", async { resilience.ready().await?.call(1).await }),
        ],
    }
}

fn many_keys() -> Contest {
    let limiter = ours();
    let keyed = RateLimiter::dashmap(quota());
    let (ours, theirs) = (keys(), keys());
    let (mut our_turn, mut their_turn) = (0, 0);
    Contest {
        name: "limiter, a thousand keys in turn",
        bar: Bar::NoSlowerThanBestPeer,
        rows: vec![
            row!(Ours, "Limiter::check", limiter.check(&ours[next(&mut our_turn)])),
            row!(Peer, "governor, keyed", std::future::ready(keyed.check_key(&theirs[next(&mut their_turn)]))),
        ],
    }
}

fn next(turn: &mut usize) -> usize {
    *turn = (*turn + 1) % KEYS;
    *turn
}
