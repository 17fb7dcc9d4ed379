//! The event of a transition leads to the request that caused it.

use std::time::Duration;

use resil::breaker::{BreakerSettings, CountingMode};
use resil::correlation::correlated;
use resil_harness::Server;

const BOUND: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trips_event_names_the_request_that_caused_it() {
    let server = Server::fresh();
    let client = resil::connect(&server.url()).await.expect("a server that is there");
    for mode in [CountingMode::Batched, CountingMode::Exact] {
        let mut events = server.connect();
        events.set_read_timeout(Some(BOUND)).expect("a bound");
        let mut events = events.as_pubsub();
        events.subscribe("resil:events").expect("subscribed");
        let id = format!("trace-{mode:?}");
        let options = BreakerSettings::new().consecutive_failures(1).mode(mode);
        let breaker = client.breaker(&format!("bank-{mode:?}"), options).expect("valid");
        let _ = correlated(&id, breaker.call(async || Err::<(), _>("down"))).await;
        let reported = tokio::task::block_in_place(|| {
            loop {
                let message: String = events.get_message().expect("an event").get_payload().expect("text");
                if message.contains("\"open\"") {
                    break message;
                }
            }
        });
        assert!(reported.contains(&format!("\"correlation\":\"{id}\"")), "{reported}");
    }
}
