//! Bent payloads by the thousand: each is refused, or it is a state one can work with.

use std::time::{SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use resil_harness::{Options, Server};

use super::asked::{Ask, Asked, BreakerAsk, check};
use super::payload::Body;
use super::resp::{Client, Reply, Words, shown, typed, words};
use super::samples::real_payloads;
use super::server_state::{assert_no_internal_errors, assert_nothing_is_left_after_a_flush, must};
use super::waited_asked::WaitedAsk;

/// Payloads per round trip.
const BATCH: usize = 500;
const DAY_US: i64 = 86_400_000_000;

pub struct Restoring {
    _server: Server,
    client: Client,
    rng: Rng,
    /// Real payloads of every kind of state.
    samples: Vec<Body>,
    pub accepted: usize,
    pub refused: usize,
}

impl Restoring {
    pub fn start(rng: Rng) -> Self {
        let server = Server::start(Options::default().module_args(["test-clock", "yes"]));
        let mut client = Client::new(&server);
        let mut samples = Vec::new();
        // Compressed and plain: long states look different to the server then.
        for compression in ["no", "yes"] {
            must(&mut client, &format!("CONFIG SET rdbcompression {compression}"));
            samples.extend(real_payloads(&mut client).iter().map(|payload| Body::of(payload)));
        }
        Self { _server: server, client, rng, samples, accepted: 0, refused: 0 }
    }

    /// Sends `count` bent payloads, and whatever is accepted is put to every use.
    pub fn run(&mut self, count: usize) {
        for sent in (0..count).step_by(BATCH) {
            self.set_clock();
            let payloads: Vec<Vec<u8>> = (0..BATCH.min(count - sent)).map(|_| self.bent()).collect();
            let restores: Vec<Words> = payloads.iter().enumerate().map(|(i, p)| restore(&key(i), p)).collect();
            let replies = self.client.pipeline(restores.iter().map(Vec::as_slice));
            for (index, reply) in replies.iter().enumerate() {
                match reply {
                    Reply::Status(_) => self.use_key(&key(index), &payloads[index]),
                    Reply::Error(_) => self.refused += 1,
                    other => panic!("RESTORE returns OK or an error, not {other:?}"),
                }
            }
        }
        // Whatever a file may hold it must be able to give back: the last batch is still there.
        must(&mut self.client, "DEBUG RELOAD");
        assert_nothing_is_left_after_a_flush(&mut self.client);
        assert_no_internal_errors(&mut self.client);
    }

    fn bent(&mut self) -> Vec<u8> {
        let sample = &self.samples[self.rng.usize(..self.samples.len())];
        let other = &self.samples[self.rng.usize(..self.samples.len())];
        sample.mutated(other, &mut self.rng).sealed()
    }

    /// All that fit, and a few that do not.
    fn some_uses(&mut self, key: &[u8], payload: &[u8]) -> Vec<(Words, Asked)> {
        const FOREIGN: usize = 4;
        let tag = Body::of(payload).pieces().and_then(|pieces| pieces.first()?.first().copied());
        let (mut fitting, mut foreign): (Vec<_>, Vec<_>) =
            uses_of(key).into_iter().partition(|(fits, ..)| tag.is_none_or(|tag| tag == *fits));
        self.rng.shuffle(&mut foreign);
        fitting.extend(foreign.into_iter().take(FOREIGN));
        fitting.into_iter().map(|(_, call, asked)| (call, asked)).collect()
    }

    fn set_clock(&mut self) {
        let real_us = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_micros() as i64;
        let ahead_us = if self.rng.bool() { 0 } else { self.rng.i64(0..4_000 * DAY_US) };
        must(&mut self.client, &format!("RES._CLOCK {}", real_us + ahead_us));
    }

    /// Reads, copies, takes from and gives back to a restored key; then what it became must survive a dump.
    fn use_key(&mut self, key: &[u8], payload: &[u8]) {
        self.accepted += 1;
        let copy = [key, b"-copy"].concat();
        let twin = words([b"COPY".as_slice(), key, &copy, b"REPLACE"]);
        let digests = words([b"DEBUG".as_slice(), b"DIGEST-VALUE", key, &copy]);
        let dump = words([b"DUMP".as_slice(), key]);
        // Some of them, so that what is dumped at the end was left by each of them once.
        let mut uses = self.some_uses(key, payload);
        uses.truncate(self.rng.usize(1..=uses.len()));
        let mut calls = vec![twin, digests.clone()];
        calls.extend(uses.iter().map(|(call, _)| call.clone()));
        calls.extend([words([b"MEMORY".as_slice(), b"USAGE", key]), dump]);
        let mut replies = self.client.pipeline(calls.iter().map(Vec::as_slice));
        let last = replies.pop();
        // What was over long ago is looked at, and gone, before it can be copied.
        if replies[0] == Reply::Integer(1) {
            same_digests(&replies[1], payload);
        }
        for ((call, asked), reply) in uses.iter().zip(&replies[2..]) {
            if let Err(broken) = check(asked, reply) {
                let state = payload.escape_ascii();
                panic!("{broken}\n  call: {}\n  reply: {reply:?}\n  on the restored payload {state}", shown(call));
            }
        }
        // The uses may have drained it, or set an expiry that has passed: then there is nothing to dump.
        if let Some(Reply::Bulk(dumped)) = last {
            let calls = [restore(&copy, &dumped), words([b"PERSIST".as_slice(), key]), digests];
            let replies = self.client.pipeline(calls.iter().map(Vec::as_slice));
            assert!(!replies[0].is_error(), "its own DUMP was refused ({:?}): {}", replies[0], payload.escape_ascii());
            // Unless it ran out in between, which the server tells by a digest of zeros.
            if replies[1] == Reply::Integer(1) {
                same_digests(&replies[2], payload);
            }
        }
    }
}

fn same_digests(reply: &Reply, payload: &[u8]) {
    let Reply::Array(digests) = reply else { panic!("two digests were expected, got {reply:?}") };
    assert_eq!(digests[0], digests[1], "copies have the same digest; restored from {}", payload.escape_ascii());
}

/// Every command there is, against one key, by the tags of the states it fits; elsewhere each returns WRONGTYPE.
fn uses_of(key: &[u8]) -> Vec<(u8, Words, Asked)> {
    let gcra = |capacities: &[i64], ask| Asked::Gcra { capacities: capacities.to_vec(), ask };
    let window = |ask| Asked::Window { limit: 1_000, period_ms: 3_600_001, ask };
    let throttle = |quantity| Asked::Throttle { capacity: 6, quantity };
    let uses = [
        (b'G', "RES.GCRA.PEEK key 10 1h", gcra(&[10], Ask::Peek)),
        (b'G', "RES.GCRA.PEEK key 10 1s AND 7 1d", gcra(&[10, 7], Ask::Peek)),
        (b'G', "RES.GCRA key 10 1h REFUND 1", gcra(&[10], Ask::Refund(1))),
        (b'G', "RES.GCRA key 1000000000 366d UPTO 1000000000", gcra(&[1_000_000_000], Ask::UpTo(1_000_000_000))),
        (b'G', "RES.GCRA key 10 1h", gcra(&[10], Ask::Cost(1))),
        (b'G', "RES.GCRA key 3 7us RESERVE 1d", gcra(&[3], Ask::Reserve { cells: 1, within_ms: 86_400_000 })),
        (b'G', "RES.GCRA key 10 1h AND 100 1d BURST 5 COST 2", gcra(&[10, 5], Ask::Cost(2))),
        (b'G', "RES.GCRA key 10 1h REFUND 1000000000", gcra(&[10], Ask::Refund(1_000_000_000))),
        (b'G', "RES.MGCRA 1 key 10 1h 10", Asked::Mgcra { capacities: vec![10], cost: 1 }),
        (b'G', "CL.THROTTLE key 5 10 3600 0", throttle(0)),
        (b'G', "CL.THROTTLE key 5 10 3600", throttle(1)),
        (b'W', "RES.WINDOW.PEEK key 1000 1h", window(Ask::Peek)),
        (b'W', "RES.WINDOW key 1000 1h COST 3", window(Ask::Cost(3))),
        (b'W', "RES.WINDOW key 1000 1h UPTO 1000", window(Ask::UpTo(1_000))),
        (b'B', "RES.BREAKER STATE key", Asked::Breaker(BreakerAsk::State)),
        (b'B', "RES.BREAKER ADMIT key CALLER one", Asked::Breaker(BreakerAsk::Admit)),
        (
            b'B',
            "RES.BREAKER TALLY key 0 one 9000000000000000000 OK 3 FAIL 2 SLOW 1",
            Asked::Breaker(BreakerAsk::Report),
        ),
        (b'B', "RES.BREAKER REPORT key 0.5f5e100.1 FAIL", Asked::Breaker(BreakerAsk::Report)),
        (b'B', "RES.BREAKER FORCE key METRICS FOR 1h", Asked::Breaker(BreakerAsk::Force)),
        (b'B', "RES.BREAKER FORCE key AUTO", Asked::Breaker(BreakerAsk::Force)),
        (b'B', "RES.BREAKER CONFIG key CONSECUTIVE 1 PROBES 2", Asked::Breaker(BreakerAsk::Done)),
        (b'B', "RES.BREAKER TALLY key 0 two 1 OK 0 FAIL 1 RUN 1", Asked::Breaker(BreakerAsk::Report)),
        (b'B', "RES.BREAKER STATE key", Asked::Breaker(BreakerAsk::State)),
        (b'L', "RES.LOCK INFO key", Asked::Waited(WaitedAsk::Info)),
        (b'L', "RES.LOCK CHECK key owner-3", Asked::Waited(WaitedAsk::Number)),
        (b'L', "RES.LOCK ACQUIRE key owner 1h", Asked::Waited(WaitedAsk::Acquire)),
        (b'L', "RES.LOCK ACQUIRE key other 1m SHARED META m", Asked::Waited(WaitedAsk::Acquire)),
        (b'L', "RES.LOCK RENEW key owner-3 1d", Asked::Waited(WaitedAsk::Renew)),
        (b'L', "RES.LOCK RENEW key owner-3 1d RAISE 5", Asked::Waited(WaitedAsk::Renew)),
        (b'L', "RES.LOCK RELEASE key owner", Asked::Waited(WaitedAsk::Release)),
        (b'L', "RES.LOCK RELEASE key owner-1 FENCE 5", Asked::Waited(WaitedAsk::Release)),
        (b'L', "RES.LOCK BREAK key ACTOR a", Asked::Waited(WaitedAsk::Number)),
        (b'L', "RES.LOCK ACQUIRE key last 1m", Asked::Waited(WaitedAsk::Acquire)),
        (b'P', "RES.BULKHEAD INFO key LIMIT 5", Asked::Waited(WaitedAsk::Info)),
        (b'P', "RES.BULKHEAD ENTER key owner 100 1h", Asked::Waited(WaitedAsk::Enter)),
        (b'P', "RES.BULKHEAD ENTER key new 21 1h", Asked::Waited(WaitedAsk::Enter)),
        (b'P', "RES.BULKHEAD RENEW key owner-3 1d", Asked::Waited(WaitedAsk::Renew)),
        (b'P', "RES.BULKHEAD LEAVE key owner-3", Asked::Waited(WaitedAsk::Release)),
        (b'P', "RES.BULKHEAD ENTER key last 1 1m", Asked::Waited(WaitedAsk::Enter)),
        (b'I', "RES.IDEMP INFO key", Asked::Waited(WaitedAsk::Info)),
        (b'I', "RES.IDEMP GET key FINGERPRINT print", Asked::Waited(WaitedAsk::Replay)),
        (b'I', "RES.IDEMP BEGIN key first 1h", Asked::Waited(WaitedAsk::Begin)),
        (b'I', "RES.IDEMP BEGIN key other 1h FINGERPRINT other", Asked::Waited(WaitedAsk::Begin)),
        (b'I', "RES.IDEMP ONCE key 1h TOKEN first", Asked::Waited(WaitedAsk::Number)),
        (b'I', "RES.IDEMP RENEW key first 1m", Asked::Waited(WaitedAsk::Renew)),
        (b'I', "RES.IDEMP COMMIT key other 1h x", Asked::Waited(WaitedAsk::Commit)),
        (b'I', "RES.IDEMP ABORT key first", Asked::Waited(WaitedAsk::Abort)),
        (b'I', "RES.IDEMP BEGIN key third 1m ONLAPSE HOLD", Asked::Waited(WaitedAsk::Begin)),
        (b'I', "RES.IDEMP COMMIT key third 1h x ERROR", Asked::Waited(WaitedAsk::Commit)),
        (b'S', "RES.SFLIGHT INFO key", Asked::Waited(WaitedAsk::Info)),
        (b'S', "RES.SFLIGHT GET key", Asked::Waited(WaitedAsk::Seen)),
        (b'S', "RES.SFLIGHT JOIN key first 1h", Asked::Waited(WaitedAsk::Join)),
        (b'S', "RES.SFLIGHT JOIN key other 1h", Asked::Waited(WaitedAsk::Join)),
        (b'S', "RES.SFLIGHT RENEW key first 1m", Asked::Waited(WaitedAsk::Renew)),
        (b'S', "RES.SFLIGHT PUBLISH key first 1s VALUE x STALE 1h", Asked::Waited(WaitedAsk::Publish)),
        (b'S', "RES.SFLIGHT INVALIDATE key SOFT", Asked::Waited(WaitedAsk::Number)),
        (b'S', "RES.SFLIGHT ABANDON key other RETRY 1h", Asked::Waited(WaitedAsk::Abort)),
        (b'S', "RES.SFLIGHT INVALIDATE key", Asked::Waited(WaitedAsk::Number)),
        (b'S', "RES.SFLIGHT JOIN key last 1h", Asked::Waited(WaitedAsk::Join)),
        (b'S', "RES.SFLIGHT PUBLISH key last 1h ERROR text", Asked::Waited(WaitedAsk::Publish)),
        (b'D', "RES.DLQ GET key m0", Asked::Waited(WaitedAsk::Shown)),
        (b'D', "RES.DLQ INFO key", Asked::Waited(WaitedAsk::Shown)),
        (b'D', "RES.DLQ INFO key GROUPS", Asked::Waited(WaitedAsk::Listed)),
        (b'D', "RES.DLQ INFO key CASES", Asked::Waited(WaitedAsk::Listed)),
        (b'D', "RES.DLQ INFO key ALERTS", Asked::Waited(WaitedAsk::Listed)),
        (b'D', "RES.DLQ INFO key AUDIT", Asked::Waited(WaitedAsk::Listed)),
        (b'D', "RES.DLQ LIST key STATE dead", Asked::Waited(WaitedAsk::Listed)),
        (b'D', "RES.DLQ TAKE key token 1h", Asked::Waited(WaitedAsk::Take)),
        (b'D', "RES.DLQ TAKE key new 1h COUNT 5", Asked::Waited(WaitedAsk::Take)),
        (b'D', "RES.DLQ FAIL key new ERROR no PAYLOAD p TYPE pay AGGREGATE b", Asked::Waited(WaitedAsk::Fail)),
        (b'D', "RES.DLQ FAIL key final ERROR no TYPE order FINAL", Asked::Waited(WaitedAsk::Fail)),
        (b'D', "RES.DLQ PARK key later AGGREGATE b PAYLOAD p", Asked::Waited(WaitedAsk::Park)),
        (b'D', "RES.DLQ RENEW key token 1m", Asked::Waited(WaitedAsk::RenewTaken)),
        (b'D', "RES.DLQ DONE key m0 17 m1 18", Asked::Waited(WaitedAsk::Settle)),
        (b'D', "RES.DLQ DIAGNOSE key pay/no CATEGORY poison CAUSE c FIX f ACTOR a", Asked::Waited(WaitedAsk::Number)),
        (b'D', "RES.DLQ REDRIVE key 1 ACTOR a", Asked::Waited(WaitedAsk::Governed)),
        (b'D', "RES.DLQ STOP key 1 ACTOR a", Asked::Waited(WaitedAsk::Governed)),
        (b'D', "RES.DLQ CLOSE key 1 ACTOR a", Asked::Waited(WaitedAsk::Governed)),
        (b'D', "RES.DLQ HOLD key AGGREGATE b ON ACTOR a", Asked::Waited(WaitedAsk::Number)),
        (b'D', "RES.DLQ PURGE key OLDER 90d ACTOR a", Asked::Waited(WaitedAsk::Governed)),
        (b'D', "RES.DLQ SEEN key 1 ACTOR a", Asked::Waited(WaitedAsk::Number)),
        (b'D', "RES.DLQ CONFIG key RATEMAX 5 1s ACTOR a", Asked::Waited(WaitedAsk::Governed)),
        (b'K', "RES.GUARD STATE key", Asked::Waited(WaitedAsk::Shown)),
        (b'K', "RES.POLICY GET key", Asked::Waited(WaitedAsk::Governed)),
        (b'K', "RES.POLICY HISTORY key", Asked::Waited(WaitedAsk::Governed)),
        (b'K', "RES.GUARD ENTER key call-1", Asked::Waited(WaitedAsk::GuardEnter)),
        (b'K', "RES.GUARD ENTER key new PRIORITY critical COST 2 CALLER c1", Asked::Waited(WaitedAsk::GuardEnter)),
        (b'K', "RES.GUARD EXIT key 17 FAIL", Asked::Waited(WaitedAsk::GuardExit)),
        (b'K', "RES.POLICY SET key {\"retry\":{\"maxAttempts\":2}}", Asked::Waited(WaitedAsk::Governed)),
        (b'K', "RES.GUARD ENTER key newest", Asked::Waited(WaitedAsk::GuardEnter)),
        (b'K', "RES.POLICY DELETE key", Asked::Waited(WaitedAsk::Governed)),
    ];
    let with_key = |line: &str| typed(line).into_iter().map(|word| if word == b"key" { key.to_vec() } else { word });
    uses.into_iter().map(|(tag, line, asked)| (tag, with_key(line).collect(), asked)).collect()
}

/// `RESTORE key 0 payload REPLACE`.
pub fn restore(key: &[u8], payload: &[u8]) -> Words {
    words([b"RESTORE".as_slice(), key, b"0", payload, b"REPLACE"])
}

fn key(index: usize) -> Vec<u8> {
    format!("bent:{index}").into_bytes()
}
