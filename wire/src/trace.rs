//! The trace id of W3C trace context, where a text is one or has one.

/// The trace id of a `traceparent` header. `None` if it is none, or all zeros.
pub fn of_traceparent(header: &str) -> Option<&str> {
    let mut parts = header.trim().split('-');
    let (version, id) = (parts.next()?, parts.next()?);
    (version.len() == 2 && is_hex(version) && version != "ff" && is_trace_id(id)).then_some(id)
}

/// The trace id in a correlation: the whole text, or that of a `traceparent`.
pub fn of_correlation(text: &str) -> Option<&str> {
    if is_trace_id(text) { Some(text) } else { of_traceparent(text) }
}

fn is_trace_id(text: &str) -> bool {
    text.len() == 32 && is_hex(text) && text.bytes().any(|byte| byte != b'0')
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
