//! What is sent: calls with a place for the key, encoded once, and the reply each must get.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::client::CONNECTIONS;
use crate::stage::Size;

/// Bytes of a key: `key:` and ten digits.
pub const KEY_BYTES: usize = 14;
const DIGITS: usize = 10;

/// Keys of [`Keys::Few`].
pub const FEW: u32 = 1_000;

/// The next sequence number of a batch, or key that is new; calls are sent in the order they are built. Starts where it has ten digits.
static SEQUENCE: AtomicU32 = AtomicU32::new(1_000_000_000);

/// Which server a load runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Ours, without persistence and without replicas.
    Alone,
    /// No module at all: one that listens to the server's events makes others' writes dearer, so that is where they run.
    Plain,
    /// redis-cell instead of ours.
    Cell,
    /// A module that replies the same and does nothing.
    Noop,
    /// Ours, with one replica.
    Replicated,
    PlainReplicated,
    /// Ours, with an append-only file synced every second.
    AppendOnly,
    PlainAppendOnly,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Every call on a key drawn from all.
    Random,
    /// The same, of fewer keys: there is a breaker for each dependency, not for each user.
    Few,
    /// Every call on the same key.
    Hot,
    /// Every call on a key that was never used: what is done for the first time. As many as [`Keys::Few`] are there before.
    New,
}

impl Keys {
    pub fn count(self, size: Size) -> u32 {
        match self {
            Self::Random => size.keys,
            Self::Few | Self::New => FEW,
            Self::Hot => 1,
        }
    }

    /// The key of one call.
    pub fn draw(self, random: &mut Random, size: Size) -> u32 {
        match self {
            Self::New => SEQUENCE.fetch_add(1, Ordering::Relaxed),
            Self::Random | Self::Few | Self::Hot => random.below(self.count(size)),
        }
    }
}

/// A row of the table.
#[derive(Clone, Debug)]
pub struct Load {
    pub name: &'static str,
    pub place: Place,
    pub keys: Keys,
    /// Makes the keys, one call each, before anything is measured.
    pub fill: Call,
    /// What is measured.
    pub call: Call,
    /// Slow loads run this many times fewer calls.
    pub divisor: usize,
    pub sent: Sent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Many calls at once, over several connections.
    Pipelined,
    /// On one connection, each command when the one before is answered.
    OneByOne,
}

/// The shape of a reply, and the start of the line in it that tells whether it is the expected one.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    pub lines: usize,
    pub telling_line: usize,
    pub starts_with: &'static str,
}

impl Reply {
    /// A status or an integer.
    pub const fn line(starts_with: &'static str) -> Self {
        Self { lines: 1, telling_line: 0, starts_with }
    }

    /// An array whose first element, a number, is the verdict.
    pub const fn array(lines: usize, first: &'static str) -> Self {
        Self { lines, telling_line: 1, starts_with: first }
    }

    /// An array whose first element, a text, is the verdict; its length has a line of its own.
    pub const fn verdict(lines: usize, text: &'static str) -> Self {
        Self { lines, telling_line: 2, starts_with: text }
    }
}

/// One unit of work: a command, or several sent together that count as one.
#[derive(Clone, Debug)]
pub struct Call {
    /// The commands on the wire, keys zero.
    bytes: Vec<u8>,
    /// Where the digits of a key start in `bytes`.
    digits_at: Vec<usize>,
    /// Where a sequence number starts, and the last letter of its sender.
    sequence_at: Option<usize>,
    sender_at: Option<usize>,
    /// Where each command ends in `bytes`.
    pub ends: Vec<usize>,
    /// What each command must be answered.
    pub replies: Vec<Reply>,
}

impl Call {
    /// From commands as one types them. The words `{a}`, `{b}` and `{c}` are keys, `{seq}` is a number that grows with
    /// every call, and `{sender}` names the connection: numbers grow for each, but between two anyone may be first.
    pub fn new(commands: &[&str], reply: Reply) -> Self {
        let commands: Vec<_> = commands.iter().map(|command| (*command, reply)).collect();
        Self::each(&commands)
    }

    /// The same, with a reply for each command.
    pub fn each(commands: &[(&str, Reply)]) -> Self {
        let (bytes, digits_at, ends, replies) = Default::default();
        let mut call = Self { bytes, digits_at, sequence_at: None, sender_at: None, ends, replies };
        for (command, reply) in commands {
            let words: Vec<&str> = command.split(' ').collect();
            call.bytes.extend(format!("*{}\r\n", words.len()).bytes());
            for word in words {
                call.push(word);
            }
            call.ends.push(call.bytes.len());
            call.replies.push(*reply);
        }
        call
    }

    fn push(&mut self, word: &str) {
        let prefix = match word {
            "{a}" => "key:",
            "{b}" => "keb:",
            "{c}" => "kec:",
            "{seq}" => {
                self.bytes.extend(format!("${DIGITS}\r\n").bytes());
                self.sequence_at = Some(self.bytes.len());
                self.bytes.extend(format!("{:0DIGITS$}\r\n", 0).bytes());
                return;
            }
            "{sender}" => {
                self.bytes.extend(b"$3\r\nme");
                self.sender_at = Some(self.bytes.len());
                self.bytes.extend(b"a\r\n");
                return;
            }
            _ => {
                self.bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
                return;
            }
        };
        self.bytes.extend(format!("${KEY_BYTES}\r\n{prefix}").bytes());
        self.digits_at.push(self.bytes.len());
        self.bytes.extend(format!("{:0DIGITS$}\r\n", 0).bytes());
    }

    /// Appends the call for the `key`-th key, as the `connection`-th connection sends it.
    fn write(&self, key: u32, connection: usize, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        for at in &self.digits_at {
            write_digits(key, &mut out[start + at..start + at + DIGITS]);
        }
        if let Some(at) = self.sequence_at {
            write_digits(SEQUENCE.fetch_add(1, Ordering::Relaxed), &mut out[start + at..start + at + DIGITS]);
        }
        if let Some(at) = self.sender_at {
            out[start + at] = b'a' + connection as u8;
        }
    }

    /// The calls for `keys`, cut into pipelines of `pipeline` calls.
    pub fn batches(&self, keys: impl IntoIterator<Item = u32>, pipeline: usize) -> Batches {
        let mut batches = Batches { bytes: Vec::new(), ends: Vec::new(), pipeline, last: pipeline };
        let mut in_batch = 0;
        for key in keys {
            self.write(key, batches.ends.len() % CONNECTIONS, &mut batches.bytes);
            in_batch += 1;
            if in_batch == pipeline {
                batches.ends.push(batches.bytes.len());
                in_batch = 0;
            }
        }
        if in_batch > 0 {
            batches.ends.push(batches.bytes.len());
            batches.last = in_batch;
        }
        batches
    }
}

fn write_digits(number: u32, digits: &mut [u8]) {
    let mut rest = number;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

/// Pipelines ready to be sent.
pub struct Batches {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Calls in a pipeline, and in the last one.
    pipeline: usize,
    last: usize,
}

impl Batches {
    /// Each pipeline, and how many calls it has.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], usize)> {
        self.ends.iter().enumerate().map(|(index, &end)| {
            let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
            let is_last = index + 1 == self.ends.len();
            (&self.bytes[start..end], if is_last { self.last } else { self.pipeline })
        })
    }
}

/// The same keys in every run: a xorshift with a fixed seed, so that runs can be compared.
pub struct Random(u64);

impl Random {
    pub fn seeded(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (((self.0 >> 32) * bound as u64) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_what_a_client_would_send() {
        let call = Call::new(&["GET {a}", "GET {b}"], Reply::line("$"));
        let batches = call.batches([7, 1234567890], 1);
        let sent: Vec<_> = batches.iter().map(|(bytes, _)| String::from_utf8_lossy(bytes).into_owned()).collect();
        let get = |key: &str| format!("*2\r\n$3\r\nGET\r\n$14\r\n{key}\r\n");
        assert_eq!(sent[0], get("key:0000000007") + &get("keb:0000000007"));
        assert_eq!(sent[1], get("key:1234567890") + &get("keb:1234567890"));
        assert_eq!(call.ends, [get("key:0000000007").len(), sent[0].len()]);
    }

    #[test]
    fn sequence_numbers_grow_and_senders_take_turns() {
        let call = Call::new(&["TALLY {sender} {seq}"], Reply::line(":"));
        let batches = call.batches(0..=CONNECTIONS as u32, 1);
        let sent: Vec<_> = batches.iter().map(|(bytes, _)| String::from_utf8_lossy(bytes).into_owned()).collect();
        let words: Vec<Vec<&str>> = sent.iter().map(|call| call.split("\r\n").collect()).collect();
        let senders: Vec<&str> = words.iter().map(|words| words[4]).collect();
        assert_eq!(senders, ["mea", "meb", "mec", "med", "mea"]);
        assert!(words.windows(2).all(|pair| pair[0][6] < pair[1][6]));
    }

    #[test]
    fn the_last_pipeline_may_be_shorter() {
        let call = Call::new(&["PING"], Reply::line("+PONG"));
        let calls: Vec<_> = call.batches(0..5, 2).iter().map(|(_, calls)| calls).collect();
        assert_eq!(calls, [2, 2, 1]);
        assert_eq!(call.batches(0..4, 2).iter().map(|(_, calls)| calls).sum::<usize>(), 4);
    }
}
