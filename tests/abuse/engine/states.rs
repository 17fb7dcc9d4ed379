//! State as bytes, written from the description in `core/src/codec.rs` and not with its code: what a foreign program
//! that speaks the format would send.

/// One tier: period, limit, capacity, TAT, fraction, overhang.
#[derive(Debug, Clone, Copy)]
pub struct TierParts {
    pub period_us: u64,
    pub limit: u64,
    pub capacity: u64,
    pub tat_us: u64,
    pub frac: u64,
    pub overhang_ms: u64,
}

/// The tiers of a GCRA key.
pub fn tiers(tiers: &[TierParts]) -> Vec<u8> {
    let mut numbers = vec![tiers.len() as u64];
    for tier in tiers {
        numbers.extend([tier.period_us, tier.limit, tier.capacity, tier.tat_us, tier.frac, tier.overhang_ms]);
    }
    tagged(b'G', &numbers)
}

/// A window's whole log; the first instant is absolute, the others are distances.
pub fn log(period_us: u64, entries: &[(u64, u64)]) -> Vec<u8> {
    let mut numbers = vec![period_us, entries.len() as u64];
    numbers.extend(entries.iter().flat_map(|(distance_us, cells)| [*distance_us, *cells]));
    tagged(b'W', &numbers)
}

/// What one grant did to a window's log.
pub fn log_change(period_us: u64, cut_to_us: u64, at_us: u64, cells: u64) -> Vec<u8> {
    tagged(b'w', &[period_us, cut_to_us, at_us, cells])
}

/// A tag and LEB128 numbers: the shape of everything.
pub fn tagged(tag: u8, numbers: &[u64]) -> Vec<u8> {
    let mut bytes = vec![tag];
    for number in numbers {
        let mut rest = *number;
        while rest >= 0x80 {
            bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
    }
    bytes
}

/// The numbers of a state; `None` if there is a byte too many or too few.
pub fn numbers(bytes: &[u8]) -> Option<Vec<u64>> {
    let mut numbers = Vec::new();
    let mut rest = bytes.get(1..)?.iter();
    while !rest.as_slice().is_empty() {
        let mut number = 0u64;
        for shift in (0..).step_by(7) {
            let byte = rest.next()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                break;
            }
        }
        numbers.push(number);
    }
    Some(numbers)
}
