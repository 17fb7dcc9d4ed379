//! What telemetry costs a limiter call of a server: counting at most a twentieth. What a listener of every call costs is printed.
//! A
//! program of its own, in which nothing else runs. Compared are the fastest of many rounds that take turns, so that a noisy machine disturbs
//! both alike.
#![cfg(feature = "redis")]

use std::time::{Duration, Instant};

use metrics::with_local_recorder;
use resil::limiter::{Limit, Limiter};
use resil::telemetry::{Interest, MetricCounts, subscribe};
use resil_harness::{Options, Server};

const ROUNDS: usize = 60;

async fn round(limiter: &Limiter, calls: u32) -> Duration {
    let begun = Instant::now();
    for _ in 0..calls {
        limiter.check("ann").await.unwrap();
    }
    begun.elapsed() / calls
}

#[test]
fn counting_costs_at_most_a_twentieth_of_a_limiter_call() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = Server::start(Options::default());
        let counts = MetricCounts::new();
        let limit = || Limit::per_second(1_000_000_000);
        for (what, url, calls, bound) in
            [("a server", server.url().to_owned(), 500, Some(1.05)), ("memory", "memory://".to_owned(), 20_000, None)]
        {
            let plain = resil::connect(&url).await.unwrap();
            let off = plain.limiter("off", limit()).unwrap();
            let on = with_local_recorder(&counts, || plain.limiter("on", limit())).unwrap();
            let (mut fastest_off, mut fastest_counted, mut fastest_told) = (Duration::MAX, Duration::MAX, Duration::MAX);
            for _ in 0..ROUNDS {
                fastest_off = fastest_off.min(round(&off, calls).await);
                fastest_counted = fastest_counted.min(round(&on, calls).await);
                let listening = subscribe(Interest::Calls, |event| {
                    std::hint::black_box(event);
                });
                fastest_told = fastest_told.min(round(&on, calls).await);
                drop(listening);
            }
            let ratio = |time: Duration| time.as_secs_f64() / fastest_off.as_secs_f64();
            let (counted, told) = (ratio(fastest_counted), ratio(fastest_told));
            println!("{what}: off {fastest_off:?}, counted {fastest_counted:?} ({counted:.3}), and told {fastest_told:?} ({told:.3})");
            if let Some(bound) = bound {
                assert!(counted <= bound, "{what}: {counted:.3}");
            }
        }
    });
}
