//! Calls of RES.BREAKER by chance, with permits that earlier calls were given.

use super::asked::{Asked, BreakerAsk};
use super::generator::{Call, DAY_US, Generator};
use super::resp::{Reply, Words, words};

/// Permits remembered: enough that some come back late.
const PERMITS: usize = 200;

impl Generator {
    /// One of the subcommands; mostly those that services send all day.
    pub(super) fn breaker(&mut self) -> Call {
        let (line, ask) = match self.rng.u32(0..20) {
            0..6 => (self.admit(), BreakerAsk::Admit),
            6..11 => (self.report(), BreakerAsk::Report),
            11..14 => (self.tally(), BreakerAsk::Report),
            14..16 => (self.on_key("STATE"), BreakerAsk::State),
            16 | 17 => (self.force(), BreakerAsk::Force),
            18 => (self.on_key("RESET"), BreakerAsk::Done),
            _ => (self.config(), BreakerAsk::Done),
        };
        Call { words: line, asked: Asked::Breaker(ask) }
    }

    /// Keeps the permit of an admission for a later report.
    pub fn learn(&mut self, call: &Call, reply: &Reply) {
        if let Asked::Waited(_) = call.asked {
            return self.learn_fence(call, reply);
        }
        let (Asked::Breaker(BreakerAsk::Admit), Reply::Array(elements)) = (&call.asked, reply) else { return };
        // The key stands third, unless a script comes before.
        let key = call.words.iter().rposition(|word| word.eq_ignore_ascii_case(b"ADMIT"));
        if let (Some(Reply::Bulk(permit)), Some(at)) = (elements.get(2), key)
            && let Some(key) = call.words.get(at + 1)
        {
            if self.permits.len() == PERMITS {
                self.permits.pop_front();
            }
            self.permits.push_back((key.clone(), permit.clone()));
        }
    }

    fn on_key(&mut self, subcommand: &str) -> Words {
        vec![self.cased("RES.BREAKER"), self.cased(subcommand), self.key("brk")]
    }

    fn admit(&mut self) -> Words {
        let mut call = self.on_key("ADMIT");
        if self.rng.bool() {
            call.extend([self.cased("CALLER"), self.caller()]);
        }
        if self.rng.u32(0..4) == 0 {
            call.extend(self.options());
        }
        call
    }

    fn report(&mut self) -> Words {
        let mut call = self.on_key("REPORT");
        let given = match self.rng.u32(0..10) {
            0 => None,
            // The same permit twice, now and then.
            1 => self.permits.front().cloned(),
            _ => self.permits.pop_front(),
        };
        match given {
            Some((key, permit)) => {
                call[2] = key;
                call.push(permit);
            }
            None => call.push(self.forged_permit()),
        }
        let outcome = ["OK", "OK", "FAIL", "FAIL", "FAIL", "IGNORE", "CANCEL"][self.rng.usize(..7)];
        call.push(self.cased(outcome));
        if self.rng.bool() {
            let took_us = self.spread(DAY_US);
            call.extend([self.cased("DURATION"), self.duration(took_us).into_bytes()]);
        }
        if self.rng.u32(0..4) == 0 {
            call.extend([self.cased("CORRELATION"), self.text()]);
        }
        call
    }

    fn forged_permit(&mut self) -> Vec<u8> {
        let now_us = self.now_us;
        match self.rng.u32(0..5) {
            0 => self.text(),
            1 => format!("0.{now_us:x}.1").into_bytes(),
            2 => format!("0.{now_us:x}.1.{:x}", self.rng.u32(..)).into_bytes(),
            3 => {
                format!("{:x}.{:x}.{:x}.{:x}", self.rng.u64(..), self.rng.i64(0..), self.rng.u64(..), self.rng.u32(..))
                    .into_bytes()
            }
            _ => b"ffffffffffffffff.7fffffffffffffff.ffffffffffffffff.ffffffff".to_vec(),
        }
    }

    fn tally(&mut self) -> Words {
        let mut call = self.on_key("TALLY");
        let generation = if self.rng.u32(0..4) == 0 { self.now_us } else { 0 };
        let seq = if self.rng.u32(0..10) == 0 { i64::MAX } else { self.rng.i64(0..100_000) };
        call.extend([generation.to_string().into_bytes(), self.caller(), seq.to_string().into_bytes()]);
        let (ok, failures) = (self.rng.i64(0..=20), self.rng.i64(0..=20) * self.rng.i64(0..=1));
        let (ok, failures) = if self.rng.u32(0..10) == 0 { (ok * 500, failures * 500) } else { (ok, failures) };
        let mut counts = vec![("OK", ok), ("FAIL", failures)];
        if self.rng.bool() {
            counts.push(("SLOW", self.rng.i64(0..=(ok + failures).min(10_000))));
        }
        if self.rng.bool() {
            counts.push(("RUN", self.rng.i64(0..=failures)));
        }
        self.rng.shuffle(&mut counts);
        for (name, count) in counts {
            call.extend([self.cased(name), count.to_string().into_bytes()]);
        }
        call
    }

    fn force(&mut self) -> Words {
        let mut call = self.on_key("FORCE");
        let state = ["OPEN", "CLOSED", "DISABLED", "METRICS", "AUTO", "AUTO", "AUTO"][self.rng.usize(..7)];
        call.push(self.cased(state));
        if state != "AUTO" && self.rng.u32(0..4) > 0 {
            let length_us = self.spread(366 * DAY_US).max(1_000);
            call.extend([self.cased("FOR"), self.duration(length_us).into_bytes()]);
            if state == "OPEN" && self.rng.bool() {
                call.extend([self.cased("THEN"), self.cased("PROBE")]);
            }
        }
        for word in ["ACTOR", "REASON"] {
            if self.rng.u32(0..3) == 0 {
                call.extend([self.cased(word), self.text()]);
            }
        }
        call
    }

    fn config(&mut self) -> Words {
        let mut call = self.on_key("CONFIG");
        call.extend(self.options());
        call
    }

    /// Some options within their bounds. Together they may still contradict each other.
    fn options(&mut self) -> Words {
        // Name, least and most: of counts, and of durations in microseconds.
        const COUNTS: [(&str, i64, i64); 8] = [
            ("VERSION", 1, 1_000),
            ("RATE", 0, 100),
            ("SLOWRATE", 0, 100),
            ("CONSECUTIVE", 0, 10_000),
            ("MINCALLS", 1, 1_000_000),
            ("PROBES", 1, 100),
            ("SUCCESSES", 1, 1_000),
            ("QUORUM", 1, 64),
        ];
        const DURATIONS: [(&str, i64, i64); 6] = [
            ("SLOW", 1, DAY_US),
            ("OPEN", 1_000, DAY_US),
            ("MAX", 1_000, DAY_US),
            ("LEASE", 10_000, DAY_US),
            ("RAMP", 1, DAY_US),
            ("IDLE", 1_000_000, 30 * DAY_US),
        ];
        let mut options: Vec<Words> = Vec::new();
        for (name, least, most) in COUNTS {
            let count = self.spread(most).max(least).min(if self.rng.bool() { 10.max(least) } else { most });
            options.push(words([name, &count.to_string()]));
        }
        for (name, least, most) in DURATIONS {
            let length_us = self.spread(most).max(least);
            options.push(words([name, &self.duration(length_us)]));
        }
        options.push(words(["FACTOR", ["1", "1.5", "2", "100", "1.001"][self.rng.usize(..5)]]));
        let span_us = self.spread(DAY_US).max(100_000);
        options.push(match self.rng.bool() {
            true => words(["WINDOW", "COUNT", &self.spread(10_000).to_string()]),
            false => words(["WINDOW", "TIME", &self.duration(span_us)]),
        });
        self.rng.shuffle(&mut options);
        options.truncate(self.rng.usize(1..=3));
        options.concat()
    }

    fn caller(&mut self) -> Vec<u8> {
        format!("caller-{}", self.rng.u32(0..200)).into_bytes()
    }

    /// Up to the most bytes a text can have.
    pub(super) fn text(&mut self) -> Vec<u8> {
        let len = if self.rng.u32(0..10) == 0 { 512 } else { self.rng.usize(0..20) };
        (0..len).map(|_| self.rng.u8(..)).collect()
    }
}
