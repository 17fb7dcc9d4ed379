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

/// Tells the server what is left, in the finest unit it fits in. Rounded up: the client's own deadline comes first.
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(TIMEOUT_KEY, text.parse().expect("a header"));
        asked(&headers)
    }

    #[test]
    fn timeouts_are_read_as_grpc_writes_them_and_what_is_odd_is_passed_over() {
        assert_eq!(read("100m"), Some(Duration::from_millis(100)));
        assert_eq!(read("3S"), Some(Duration::from_secs(3)));
        assert_eq!(read("2M"), Some(Duration::from_secs(120)));
        assert_eq!(read("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        assert_eq!(read("7u"), Some(Duration::from_micros(7)));
        for odd in ["", "5", "S", "-1S", "+1S", "123456789n", "1.5S", "1s", "1 S"] {
            assert_eq!(read(odd), None, "{odd:?}");
        }
        assert_eq!(asked(&HeaderMap::new()), None);
    }

    proptest! {
        #[test]
        fn what_is_told_is_never_less_and_hardly_more_than_what_is_left(seconds in 0u64..4_000_000, nanos in 0u32..1_000_000_000) {
            let left = Duration::new(seconds, nanos);
            let mut headers = HeaderMap::new();
            tell(&mut headers, left);
            let told = asked(&headers).expect("readable");
            prop_assert!(told >= left);
            // Eight digits are exact to a millionth.
            prop_assert!(told - left <= left / 100_000 + Duration::from_nanos(1));
        }
    }
}
