use proptest::prelude::*;

use super::*;

fn read(text: &str) -> Option<Duration> {
    let mut headers = HeaderMap::new();
    headers.insert(TIMEOUT_KEY, text.parse().expect("a header"));
    asked(&headers)
}

#[test]
fn timeouts_are_read_as_grpc_writes_them() {
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
    fn a_reported_deadline_is_never_less_than_what_is_left(seconds in 0u64..4_000_000, nanos in 0u32..1_000_000_000) {
        let left = Duration::new(seconds, nanos);
        let mut headers = HeaderMap::new();
        tell(&mut headers, left);
        let reported = asked(&headers).expect("readable");
        prop_assert!(reported >= left);
        // Eight digits are exact to a millionth.
        prop_assert!(reported - left <= left / 100_000 + Duration::from_nanos(1));
    }
}
