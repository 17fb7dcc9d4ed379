//! A response that is kept under an `Idempotency-Key`: status, headers and body, as bytes that every language reads.
//!
//! Kept is what the response says, not how it travelled: headers of one connection or one moment (`Connection`, `Date`, what is
//! left of a rate limit) are left out, and the response of a duplicate gets its own. The bytes are one line of JSON and the body:
//!
//! ```text
//! {"status":201,"headers":[["content-type","text/plain"]]}
//! order 7
//! ```

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Says that a response was given before, and is repeated.
pub const REPLAYED_HEADER: (&str, &str) = ("idempotency-replayed", "true");

/// Of one connection (RFC 9110, 7.6.1), or of one moment.
const NOT_KEPT: [&str; 14] = [
    "connection",
    "date",
    "idempotency-replayed",
    "keep-alive",
    "proxy-connection",
    "ratelimit",
    "ratelimit-policy",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];

/// Whether a response with this status is kept by default, to be repeated to every duplicate. What may be otherwise the next time is
/// not: failures of the server (5xx), 401 and 403, which a login or a grant changes, and 408, 425 and 429, after which a client is
/// expected to ask again.
pub fn is_final(status: u16) -> bool {
    !matches!(status, 401 | 403 | 408 | 425 | 429 | 500..)
}

/// A response as it is kept.
///
/// ```
/// use resil::http::RecordedResponse;
///
/// let headers = [(&b"Content-Type"[..], &b"text/plain"[..]), (b"Date", b"Mon, 16 Nov 2026 12:00:00 GMT")];
/// let kept = RecordedResponse::new(201, headers, "order 7").to_bytes();
/// let again = RecordedResponse::read(&kept).unwrap();
/// assert_eq!((again.status(), again.body().as_ref()), (201, &b"order 7"[..]));
/// assert_eq!(again.headers(), [(b"content-type".to_vec(), b"text/plain".to_vec())]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedResponse {
    head: Head,
    body: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    status: u16,
    /// Values are bytes; each is written as the character of that number (ISO 8859-1, as HTTP has it).
    headers: Vec<(String, String)>,
}

impl RecordedResponse {
    pub fn new<'a>(
        status: u16,
        headers: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
        body: impl Into<Bytes>,
    ) -> Self {
        let headers =
            headers.into_iter().map(|(name, value)| (characters(name).to_ascii_lowercase(), characters(value)));
        let headers = headers.filter(|(name, _)| !NOT_KEPT.contains(&name.as_str())).collect();
        Self { head: Head { status, headers }, body: body.into() }
    }

    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// Names in lower case, and values.
    pub fn headers(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let bytes = |text: &String| text.chars().filter_map(|character| u8::try_from(character).ok()).collect();
        self.head.headers.iter().map(|(name, value)| (bytes(name), bytes(value))).collect()
    }

    pub fn body(&self) -> &Bytes {
        &self.body
    }

    pub fn to_bytes(&self) -> Bytes {
        let mut bytes = serde_json::to_vec(&self.head).unwrap_or_default();
        bytes.push(b'\n');
        bytes.extend_from_slice(&self.body);
        bytes.into()
    }

    /// `None` for what was not written by [`to_bytes`](Self::to_bytes).
    pub fn read(bytes: &[u8]) -> Option<Self> {
        // JSON escapes line ends: the first one is ours.
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let head: Head = serde_json::from_slice(&bytes[..end]).ok()?;
        let is_reply = (100..1_000).contains(&head.status)
            && head.headers.iter().all(|(name, value)| {
                !name.is_empty() && name.chars().chain(value.chars()).all(|character| u8::try_from(character).is_ok())
            });
        is_reply.then(|| Self { head, body: Bytes::copy_from_slice(&bytes[end + 1..]) })
    }
}

fn characters(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

#[cfg(test)]
#[path = "tests/recorded.rs"]
mod tests;
