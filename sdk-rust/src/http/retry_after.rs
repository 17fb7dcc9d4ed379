//! `Retry-After`, both ways.
//!
//! It is a number of seconds or a date in one of three notations (RFC 9110, 5.6.7). Whatever it asks for is capped: what
//! comes from another server is not to be trusted with the arithmetic of this one.

use std::time::{Duration, SystemTime};

/// The longest wait that is read from a header: 2^31 seconds, as caches do it (RFC 9111, 1.2.2).
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(1 << 31);

/// A wait in whole seconds, rounded up, so that no client comes too early.
pub fn retry_after_seconds(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0))
}

/// How long a `Retry-After` asks to wait. A date that has passed asks for no wait; what is neither seconds nor a date is
/// `None`. Never more than [`RETRY_AFTER_MAX`].
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use resil::http::parse_retry_after;
///
/// let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777 - 90);
/// assert_eq!(parse_retry_after("120", now), Some(Duration::from_secs(120)));
/// assert_eq!(parse_retry_after("Sun, 06 Nov 1994 08:49:37 GMT", now), Some(Duration::from_secs(90)));
/// assert_eq!(parse_retry_after("soon", now), None);
/// ```
pub fn parse_retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim_matches([' ', '\t']);
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are a long time.
        let wait = value.parse().map_or(RETRY_AFTER_MAX, Duration::from_secs);
        return Some(wait.min(RETRY_AFTER_MAX));
    }
    let at = httpdate::parse_http_date(value).ok()?;
    Some(at.duration_since(now).unwrap_or_default().min(RETRY_AFTER_MAX))
}
