//! `Retry-After`, both ways.
//!
//! It is a number of seconds or a date in one of three notations (RFC 9110, 5.6.7). Whatever it asks for is capped: what
//! comes from another server is not to be trusted with the arithmetic of this one.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest wait that is read from a header: 2^31 seconds, as caches do it (RFC 9111, 1.2.2).
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(1 << 31);

const DAY_SECONDS: u64 = 86_400;
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const LONG_WEEKDAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// A wait in whole seconds, rounded up: nobody is told to come too early.
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
    let at = UNIX_EPOCH.checked_add(Duration::from_secs(parse_date(value, now)?))?;
    Some(at.duration_since(now).unwrap_or_default().min(RETRY_AFTER_MAX))
}

/// Seconds since 1970.
fn parse_date(value: &str, now: SystemTime) -> Option<u64> {
    if !value.is_ascii() {
        return None;
    }
    if let Some((weekday, rest)) = value.split_once(", ") {
        let date_and_time = rest.strip_suffix(" GMT")?;
        let (date, time) = date_and_time.split_at_checked(date_and_time.len().checked_sub(9)?)?;
        let time = time.strip_prefix(' ')?;
        // "06 Nov 1994", or "06-Nov-94" of old.
        let mut parts = date.split([' ', '-']);
        let (day, month, year) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || day.len() != 2 {
            return None;
        }
        let is_old = date.contains('-');
        let (weekdays, year) = match (is_old, year.len()) {
            (false, 4) => (WEEKDAYS, digits(year)?),
            (true, 2) if !date.contains(' ') => (LONG_WEEKDAYS, full_year(digits(year)?, now)),
            _ => return None,
        };
        return moment(weekdays, weekday, year, month, digits(day)?, time);
    }
    // "Sun Nov  6 08:49:37 1994"
    if value.len() != 24 {
        return None;
    }
    let separators = [3, 7, 10, 19].map(|at| value.as_bytes()[at]);
    if separators != [b' '; 4] {
        return None;
    }
    let day = value[8..10].strip_prefix(' ').unwrap_or(&value[8..10]);
    moment(WEEKDAYS, &value[..3], digits(&value[20..])?, &value[4..7], digits(day)?, &value[11..19])
}

/// Of the years that end like this, the last that is not more than 50 years ahead.
fn full_year(two_digits: u64, now: SystemTime) -> u64 {
    let days = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / DAY_SECONDS;
    let this_year = 1970 + days * 400 / 146_097;
    let year = this_year - this_year % 100 + two_digits;
    let is_far = year > this_year + 50;
    if is_far { year - 100 } else { year }
}

fn moment(weekdays: [&str; 7], weekday: &str, year: u64, month: &str, day: u64, time: &str) -> Option<u64> {
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let days = days_since_1970(year, month, day)?;
    if weekdays[(days % 7) as usize] != weekday {
        return None;
    }
    let mut parts = time.split(':');
    let mut next = |max: u64| {
        let part = parts.next().filter(|part| part.len() == 2)?;
        digits(part).filter(|value| *value <= max)
    };
    // A leap second is 60.
    let (hour, minute, second) = (next(23)?, next(59)?, next(60)?);
    if parts.next().is_some() {
        return None;
    }
    Some(days * DAY_SECONDS + hour * 3600 + minute * 60 + second)
}

fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// `None` if there is no such day, or if it was before 1970.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let in_month = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if year < 1970 || day == 0 || day > in_month {
        return None;
    }
    // Years that begin in March have their leap day at the end.
    let (march_year, march_month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let before_month = (153 * march_month + 2) / 5;
    let days = march_year * 365 + march_year / 4 - march_year / 100 + march_year / 400 + before_month + day - 1;
    // From 1 March of the year 0 to 1 January 1970.
    Some(days - 719_468)
}
