//! What DUMP hands out: a body, then a footer of RDB version and CRC64. Here it is taken apart, bent, and sealed again
//! with the right checksum, so that the server's first line of defence lets it through to ours.
//!
//! ```text
//!   07  81 <module type id, 8 bytes>  05 <len> <the state's bytes>  00   <RDB version, 2>  <CRC64, 8>
//!   |   the type's name, 54 bits,     |                             |
//!   |   and its encoding, 10 bits     opcode: a string follows      opcode: end
//!   a value of a module type
//! ```

use fastrand::Rng;

use super::states::{numbers, tagged};

/// The body of a payload, its footer taken off.
#[derive(Debug, Clone)]
pub struct Body {
    bytes: Vec<u8>,
    rdb_version: [u8; 2],
}

/// Type byte and module type id.
const HEAD: usize = 10;
const MODULE_TYPE: u8 = 7;
const OPCODE_STRING: u8 = 5;
const OPCODE_END: u8 = 0;

/// Numbers at which something might break.
const EDGES: [u64; 26] = [
    0,
    1,
    2,
    16,
    17,
    64,
    65,
    100,
    101,
    127,
    128,
    129,
    10_000,
    10_001,
    999_999_999,
    1_000_000_000,
    1_000_000_001,
    u32::MAX as u64,
    u32::MAX as u64 + 1,
    31_622_400_000_000,
    31_622_400_000_001,
    (1 << 53) - 1,
    1 << 53,
    i64::MAX as u64 / 2,
    i64::MAX as u64,
    u64::MAX,
];

impl Body {
    /// Takes the footer off a payload of DUMP.
    pub fn of(payload: &[u8]) -> Self {
        let (bytes, footer) = payload.split_at(payload.len() - 10);
        Self { bytes: bytes.to_vec(), rdb_version: [footer[0], footer[1]] }
    }

    /// The payload with its footer, the checksum right.
    pub fn sealed(&self) -> Vec<u8> {
        let mut payload = self.bytes.clone();
        payload.extend_from_slice(&self.rdb_version);
        payload.extend_from_slice(&crc64(&payload).to_le_bytes());
        payload
    }

    /// The strings of which the state is made, if they are not compressed: one, but for a ledger.
    pub fn pieces(&self) -> Option<Vec<&[u8]>> {
        let mut rest = self.bytes.strip_prefix(&[MODULE_TYPE])?.get(HEAD - 1..)?;
        let mut pieces = Vec::new();
        while rest != [OPCODE_END] {
            let (len, behind) = match rest.strip_prefix(&[OPCODE_STRING])? {
                [short @ 0..0x40, behind @ ..] => (*short as usize, behind),
                [high @ 0x40..0x80, low, behind @ ..] => (usize::from(high & 0x3f) << 8 | usize::from(*low), behind),
                [0x80, a, b, c, d, behind @ ..] => (u32::from_be_bytes([*a, *b, *c, *d]) as usize, behind),
                _ => return None,
            };
            pieces.push(behind.get(..len)?);
            rest = &behind[len..];
        }
        Some(pieces)
    }

    /// The same type with other pieces.
    pub fn with_pieces<P: AsRef<[u8]>>(&self, pieces: &[P]) -> Self {
        let mut bytes = self.bytes[..HEAD].to_vec();
        for piece in pieces.iter().map(AsRef::as_ref) {
            bytes.push(OPCODE_STRING);
            match piece.len() {
                len @ 0..0x40 => bytes.push(len as u8),
                len @ 0x40..0x4000 => bytes.extend([0x40 | (len >> 8) as u8, len as u8]),
                len => {
                    bytes.push(0x80);
                    bytes.extend_from_slice(&(len as u32).to_be_bytes());
                }
            }
            bytes.extend_from_slice(piece);
        }
        bytes.push(OPCODE_END);
        Self { bytes, ..self.clone() }
    }

    /// Something like this one, or like a mixture with `other`.
    pub fn mutated(&self, other: &Body, rng: &mut Rng) -> Self {
        let mut bent = match (self.pieces(), rng.u32(0..10)) {
            (Some(pieces), number @ 0..8) if !pieces.is_empty() => {
                let mut pieces: Vec<Vec<u8>> = pieces.into_iter().map(<[u8]>::to_vec).collect();
                let at = rng.usize(..pieces.len());
                let others = other.pieces().unwrap_or_default();
                let foreign = rng.choice(&others).copied().unwrap_or(b"");
                pieces[at] = match number {
                    0..6 if !pieces[at].is_empty() => renumbered(&pieces[at], rng),
                    _ => shaken(&pieces[at], foreign, rng),
                };
                // Those in pieces may also lose one, or have one twice.
                match rng.u32(0..20) {
                    0 if pieces.len() > 1 => drop(pieces.remove(at)),
                    1 if pieces.len() > 1 => pieces.insert(at, pieces[at].clone()),
                    _ => {}
                }
                self.with_pieces(&pieces)
            }
            // Below the module: opcodes, lengths, the type id. The type byte stays, see `bend_type`.
            _ => {
                let mut bytes = vec![self.bytes[0]];
                bytes.extend(shaken(&self.bytes[1..], &other.bytes, rng));
                Self { bytes, ..self.clone() }
            }
        };
        if rng.u32(0..100) == 0 {
            bend_type(&mut bent.bytes, rng);
        }
        bent
    }
}

/// Another kind of value, but none of the server's own: those trust their payloads (`sanitize-dump-payload` is off by
/// default), and what they do with forged ones is the server's business. Six is the module format of long ago, the
/// others are numbers no server knows or marks that are not values.
fn bend_type(bytes: &mut [u8], rng: &mut Rng) {
    const FOREIGN: [u8; 7] = [6, 200, 244, 247, 250, 254, 255];
    if let Some(first) = bytes.first_mut() {
        *first = FOREIGN[rng.usize(..FOREIGN.len())];
    }
}

/// The same numbers but for one to three of them.
pub fn renumbered(state: &[u8], rng: &mut Rng) -> Vec<u8> {
    let Some(mut numbers) = numbers(state) else { return shaken(state, b"", rng) };
    for _ in 0..rng.usize(1..=3) {
        let at = rng.usize(..numbers.len().max(1));
        let Some(number) = numbers.get_mut(at) else { break };
        *number = match rng.u32(0..8) {
            0 => EDGES[rng.usize(..EDGES.len())],
            1 => number.wrapping_add(1),
            2 => number.wrapping_sub(1),
            3 => number.wrapping_mul(2),
            4 => *number / 2,
            5 => rng.u64(..) >> rng.u32(0..64),
            6 => *number ^ (1 << rng.u32(0..53)),
            _ => number.wrapping_add(rng.u64(0..1_000_000)),
        };
    }
    let tags = *b"GWwBbLlPpISsDd\0";
    let tag = if rng.u32(0..20) == 0 { tags[rng.usize(..tags.len())] } else { state[0] };
    tagged(tag, &numbers)
}

/// Bytes flipped, lost, repeated, cut off, added, or taken from somewhere else.
fn shaken(bytes: &[u8], other: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..rng.usize(1..=4) {
        let at = rng.usize(0..=bytes.len());
        let end = rng.usize(at..=bytes.len());
        let short_end = (at + rng.usize(1..8)).min(bytes.len());
        match rng.u32(0..8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << rng.u32(0..8),
            1 if at < bytes.len() => bytes[at] = rng.u8(..),
            2 => drop(bytes.drain(at..short_end)),
            3 => bytes.truncate(at),
            4 => bytes.extend((0..rng.usize(1..20)).map(|_| rng.u8(..)).collect::<Vec<_>>()),
            5 => {
                let repeated = bytes[at..end].to_vec();
                bytes.splice(at..at, repeated);
            }
            6 => {
                let from = rng.usize(0..=other.len());
                bytes.splice(at..short_end, other[from..(from + 16).min(other.len())].iter().copied());
            }
            _ => {
                let random = tagged(0, &[rng.u64(..) >> rng.u32(0..64)]);
                bytes.splice(at..short_end, random[1..].iter().copied());
            }
        }
    }
    // A payload may grow by repetition; what matters happens in its first kilobytes.
    bytes.truncate(1 << 16);
    bytes
}

/// CRC-64 as Redis has it: the polynomial of Jones, reflected, starting from zero.
pub fn crc64(bytes: &[u8]) -> u64 {
    const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;
    const TABLE: [u64; 256] = {
        let mut table = [0; 256];
        let mut index = 0;
        while index < 256 {
            let mut crc = index as u64;
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
                bit += 1;
            }
            table[index] = crc;
            index += 1;
        }
        table
    };
    bytes.iter().fold(0, |crc, byte| TABLE[(crc as u8 ^ byte) as usize] ^ (crc >> 8))
}
