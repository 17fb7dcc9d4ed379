//! Breakers that no step would leave behind, restored from payloads that pass every check: they must not break what
//! comes later.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use resil_harness::{Options, Server};

use crate::engine::payload::Body;
use crate::engine::resp::{Client, Reply};
use crate::engine::restoring::restore;
use crate::engine::server_state::{assert_no_internal_errors, must};
use crate::engine::states::tagged;

/// The numbers of a closed breaker; what is not named is as in a fresh one.
#[derive(Default)]
struct Closed {
    config: Vec<u64>,
    generation: u64,
    trips: u64,
    closed_us: u64,
    recorded: u64,
    last_seen_us: u64,
}

impl Closed {
    fn state(&self) -> Vec<u8> {
        let flags = !self.config.is_empty() as u64;
        let mut numbers = vec![flags];
        numbers.extend(&self.config);
        let (version, closed, failures_in_a_row, calls, evidence, tallies) = (0, 0, 0, 0, 0, 0);
        numbers.extend([version, self.generation, closed, self.trips, self.closed_us, failures_in_a_row, calls]);
        numbers.extend([self.recorded, evidence, tallies, self.last_seen_us]);
        tagged(b'B', &numbers)
    }
}

/// A server with `state` restored at `key`, if the server takes it.
fn restored(state: &[u8]) -> Option<(Server, Client)> {
    let server = Server::start(Options::default().config("rdbcompression", "no"));
    let mut client = Client::new(&server);
    must(&mut client, "RES.BREAKER TALLY sample 0 caller 1 OK 1 FAIL 0");
    let sample = Body::of(&must(&mut client, "DUMP sample").bytes());
    let taken = client.call(&restore(b"key", &sample.with_pieces(&[state]).sealed()));
    (!taken.is_error()).then_some((server, client))
}

/// What a step made of it must be something a restart can read.
fn assert_can_be_saved_and_loaded(client: &mut Client) {
    let payload = must(client, "DUMP key").bytes();
    let again = client.call(&restore(b"again", &payload));
    assert!(!again.is_error(), "its own DUMP was refused: {again:?}");
    must(client, "DEBUG RELOAD");
    assert_no_internal_errors(client);
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_micros() as u64
}

#[test]
fn a_last_generation_breaker_survives_a_transition_and_reload() {
    let state = Closed { generation: 1 << 53, last_seen_us: now_us(), ..Closed::default() }.state();
    let Some((_server, mut client)) = restored(&state) else { return };
    must(&mut client, "RES.BREAKER FORCE key OPEN");
    assert_can_be_saved_and_loaded(&mut client);
}

#[test]
fn a_breaker_with_exhausted_counts_survives_a_reload() {
    let state = Closed { recorded: i64::MAX as u64 / 2, last_seen_us: now_us(), ..Closed::default() }.state();
    let Some((_server, mut client)) = restored(&state) else { return };
    must(&mut client, "RES.BREAKER TALLY key 0 caller 2 OK 5 FAIL 0");
    assert_can_be_saved_and_loaded(&mut client);
}

#[test]
fn a_breaker_with_four_billion_trips_trips_again() {
    let (minute_us, day_us) = (60_000_000, 86_400_000_000);
    let spans = [0, minute_us, day_us, minute_us, 0, 60 * minute_us];
    let numbers = [50, 100, 1, 10, 1_000, 3, 3, 1];
    let config = [[0, 100].as_slice(), &spans, &numbers].concat();
    let trips = u32::MAX as u64;
    let state = Closed { config, trips, closed_us: now_us(), last_seen_us: now_us(), ..Closed::default() }.state();
    let Some((_server, mut client)) = restored(&state) else { return };
    let began = Instant::now();
    let reply = must(&mut client, "RES.BREAKER TALLY key 0 caller 2 OK 0 FAIL 1 RUN 1");
    assert!(matches!(&reply, Reply::Array(elements) if elements[1].text() == "open"), "{reply:?}");
    assert!(began.elapsed() < Duration::from_secs(1), "the server stood still for {:?}", began.elapsed());
    assert_can_be_saved_and_loaded(&mut client);
}
