//! Headers, and the trace that crosses a queue.

use super::{HEADER_ID, Headers, TRACEPARENT, TRACESTATE};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[test]
fn names_are_compared_without_regard_to_case() {
    let mut headers: Headers = [("headerid", "7")].into_iter().collect();
    assert_eq!(headers.get(HEADER_ID), Some("7"));
    headers.set(HEADER_ID, "8");
    assert_eq!(headers.iter().count(), 1);
    assert_eq!(headers.get("HEADERID"), Some("8"));
}

#[test]
fn what_was_written_is_read_again() {
    let headers: Headers = [(TRACEPARENT, PARENT), ("a", "ü\n\"")].into_iter().collect();
    assert_eq!(Headers::from_bytes(&headers.to_bytes().unwrap()), headers);
    assert_eq!(Headers::from_bytes(b"not json"), Headers::new());
    assert_eq!(Headers::new().to_bytes(), None);
}

#[test]
fn a_caused_message_has_the_trace_and_a_span() {
    let headers: Headers =
        [(TRACEPARENT, PARENT), (TRACESTATE, "a=b"), (HEADER_ID, "7"), ("other", "x")].into_iter().collect();
    let caused = headers.caused();
    let parent = caused.get(TRACEPARENT).unwrap();
    assert_eq!(caused.trace_id(), headers.trace_id());
    assert_ne!(parent, PARENT);
    assert!(parent.ends_with("-01") && parent.len() == PARENT.len());
    assert_eq!((caused.get(TRACESTATE), caused.get(HEADER_ID), caused.get("other")), (Some("a=b"), Some("7"), None));
}

#[test]
fn a_broken_trace_is_not_handed_on() {
    let headers: Headers = [(TRACEPARENT, "00-zz-1"), (HEADER_ID, "7")].into_iter().collect();
    assert_eq!(headers.caused().get(TRACEPARENT), None);
    assert_eq!(headers.caused().get(HEADER_ID), Some("7"));
}
