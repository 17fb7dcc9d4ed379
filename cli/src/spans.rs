//! Durations as arguments and on the screen.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Reads `250ms`, `90s`, `10m`: a whole number and a unit.
pub fn read(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration: a whole number and a unit of us, ms, s, m, h or d, such as 90s");
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit_us: u64 = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(unit_us).map(Duration::from_micros).ok_or_else(wrong)
}

/// The same, but no zero: of a scrape without any time nothing would come.
pub fn above_zero(text: &str) -> Result<Duration, String> {
    let span = read(text)?;
    if span.is_zero() { Err("must be above zero".to_owned()) } else { Ok(span) }
}

/// As people read it: `412ms`, `3.2s`, `4m10s`, `2h03m`, `5d02h`.
pub fn shown(span: Duration) -> String {
    let (ms, s) = (span.as_millis(), span.as_secs());
    match s {
        0 => format!("{ms}ms"),
        1..60 => format!("{}.{}s", s, span.subsec_millis() / 100),
        60..3_600 => format!("{}m{:02}s", s / 60, s % 60),
        3_600..86_400 => format!("{}h{:02}m", s / 3_600, s % 3_600 / 60),
        _ => format!("{}d{:02}h", s / 86_400, s % 86_400 / 3_600),
    }
}

/// How long ago a moment was; zero if it is to come.
pub fn ago(moment: SystemTime) -> String {
    shown(SystemTime::now().duration_since(moment).unwrap_or_default())
}

/// How long until a moment; zero if it is over.
pub fn until(moment: SystemTime) -> String {
    shown(moment.duration_since(SystemTime::now()).unwrap_or_default())
}

/// Since the Unix epoch, as a moment.
pub fn moment(since_epoch: Duration) -> SystemTime {
    UNIX_EPOCH + since_epoch
}

pub fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_unit_and_shown_shortly() {
        assert_eq!(read("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(read("10m"), Ok(Duration::from_secs(600)));
        for wrong in ["", "10", "ms", "-1s", "1.5s", "10 s", "99999999999999d", "1w"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let shows = [(412, "412ms"), (3_250, "3.2s"), (250_000, "4m10s"), (7_380_000, "2h03m"), (439_200_000, "5d02h")];
        for (ms, text) in shows {
            assert_eq!(shown(Duration::from_millis(ms)), text);
        }
    }
}
