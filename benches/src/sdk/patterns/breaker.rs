//! A closed circuit, and a call that succeeds. Ours on `memory://` counts in batches, as it does over a server.

use std::time::Duration;

use failsafe::futures::CircuitBreaker as _;
use recloser::{AsyncRecloser, Recloser};
use resil::breaker::BreakerSettings;
use tower::{Layer, Service, ServiceExt};
use tower_resilience_circuitbreaker::CircuitBreakerLayer;

use super::{call, memory, service};
use crate::contest::{Bar, Contest};
use crate::row;

const OPEN: Duration = Duration::from_secs(30);

pub fn contest() -> Contest {
    let breaker = memory().breaker("bench", BreakerSettings::new()).expect("valid");
    let by_hand = memory().breaker("bench", BreakerSettings::new()).expect("valid");
    let slow = BreakerSettings::new().slow_call_duration(Duration::from_secs(1)).slow_call_rate(50);
    let slow = memory().breaker("bench", slow).expect("valid");
    let recloser = Recloser::custom().error_rate(0.5).closed_len(100).half_open_len(10).open_wait(OPEN).build();
    let recloser = AsyncRecloser::from(recloser);
    let in_a_row = failsafe::failure_policy::consecutive_failures(5, failsafe::backoff::constant(OPEN));
    let in_a_row = failsafe::Config::new().failure_policy(in_a_row).build();
    let rate =
        failsafe::failure_policy::success_rate_over_time_window(0.5, 10, OPEN, failsafe::backoff::constant(OPEN));
    let rate = failsafe::Config::new().failure_policy(rate).build();
    let layer = CircuitBreakerLayer::builder().failure_rate_threshold(0.5).sliding_window_size(100);
    let mut resilience = layer.wait_duration_in_open(OPEN).build().expect("valid").layer(service());
    Contest {
        name: "breaker, closed",
        bar: Bar::NoSlowerThanBestPeer,
        rows: vec![
            row!(Measure, "the call alone", call()),
            row!(Ours, "Breaker", breaker.call(call)),
            row!(Measure, "Breaker by hand (admit, success)", async {
                let permit = by_hand.admit().await?;
                permit.success().await;
                Ok::<_, resil::Error>(1)
            }),
            row!(Measure, "Breaker, slow calls counted", slow.call(call)),
            row!(Peer, "recloser", recloser.call(call())),
            row!(Peer, "failsafe, failures in a row", in_a_row.call(call())),
            row!(Peer, "failsafe, rate", rate.call(call())),
            row!(Peer, "tower-resilience", async { resilience.ready().await?.call(1).await }),
        ],
    }
}
