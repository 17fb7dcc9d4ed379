//! `grpc-timeout`: how long a call may take, as requests say it. At most eight digits and a unit.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};

const TIMEOUT_KEY: &str = "grpc-timeout";
const DIGITS_MAX: usize = 8;
/// The units of gRPC with their nanoseconds, finest first.
const UNITS: [(char, u128); 6] = [
    ('n', 1),
    ('u', 1_000),
    ('m', 1_000_000),
    ('S', 1_000_000_000),
    ('M', 60 * 1_000_000_000),
    ('H', 3600 * 1_000_000_000),
];

/// What the caller asked for; `None` also for what cannot be read, as in gRPC's servers.
pub(super) fn asked(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(TIMEOUT_KEY)?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > DIGITS_MAX || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (_, nanos) = UNITS.iter().find(|(name, _)| unit.chars().eq([*name]))?;
    let nanos = digits.parse::<u128>().ok()? * nanos;
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    Some(Duration::new(seconds, (nanos % 1_000_000_000) as u32))
}

/// Sends the server the time that is left, in the finest unit it fits in. Rounded up: the client's own deadline comes first.
pub(super) fn tell(headers: &mut HeaderMap, left: Duration) {
    let most = 10_u128.pow(DIGITS_MAX as u32) - 1;
    let said =
        UNITS.iter().map(|(name, nanos)| (left.as_nanos().div_ceil(*nanos), name)).find(|(count, _)| *count <= most);
    let (count, unit) = said.unwrap_or((most, &'H'));
    if let Ok(value) = HeaderValue::try_from(format!("{count}{unit}")) {
        headers.insert(TIMEOUT_KEY, value);
    }
}

#[cfg(test)]
#[path = "tests/deadline.rs"]
mod tests;
