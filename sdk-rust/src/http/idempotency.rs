//! `Idempotency-Key`: the client's name for one piece of work, so that asking twice does it once.
//!
//! The header is a quoted string (a structured field); many clients send it bare, and both are read as the same key. What
//! happens to a key is decided by [`idempotency`](crate::idempotency); its refusals become responses with
//! [`Problem`](super::Problem): missing or malformed 400, in progress 409 with `Retry-After`, another request under the same
//! key 422.

use sha2::{Digest, Sha256};

use crate::error::Error;

/// The longest key that is taken.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;

/// A key that was looked at: printable, neither empty nor too long.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// For requests that must have one. `header` is the value of `Idempotency-Key`, if there is one.
    ///
    /// ```
    /// use resil::http::IdempotencyKey;
    ///
    /// let key = IdempotencyKey::required(Some(br#""8e03978e-40d5""#))?;
    /// assert_eq!(key.as_str(), "8e03978e-40d5");
    /// assert!(IdempotencyKey::required(None).is_err());
    /// # Ok::<(), resil::Error>(())
    /// ```
    pub fn required(header: Option<&[u8]>) -> Result<Self, Error> {
        let missing = || refused("is required for this request");
        Self::optional(header)?.ok_or_else(missing)
    }

    /// For requests that may have one. A key that is there but malformed is refused all the same.
    pub fn optional(header: Option<&[u8]>) -> Result<Option<Self>, Error> {
        header.map(Self::parse).transpose()
    }

    /// Of all the `Idempotency-Key` headers that a request has. More than one is refused: which of them would it be?
    ///
    /// ```
    /// # use resil::http::IdempotencyKey;
    /// assert_eq!(IdempotencyKey::only([&b"k1"[..]])?.unwrap().as_str(), "k1");
    /// assert!(IdempotencyKey::only([]).unwrap().is_none());
    /// assert!(IdempotencyKey::only([&b"k1"[..], b"k1"]).is_err());
    /// # Ok::<(), resil::Error>(())
    /// ```
    pub fn only<'a>(headers: impl IntoIterator<Item = &'a [u8]>) -> Result<Option<Self>, Error> {
        let mut headers = headers.into_iter();
        match (headers.next(), headers.next()) {
            (header, None) => Self::optional(header),
            (_, Some(_)) => Err(refused("was sent more than once")),
        }
    }

    fn parse(header: &[u8]) -> Result<Self, Error> {
        let header = header.trim_ascii();
        let key = match header.strip_prefix(b"\"") {
            Some(rest) => unquoted(rest)?,
            // Many libraries join headers of one name with commas, and two keys would look like one.
            None if header.contains(&b',') => return Err(refused("has a comma: send one key, or quote it")),
            None => header.to_vec(),
        };
        if key.is_empty() {
            return Err(refused("is empty"));
        }
        if key.len() > IDEMPOTENCY_KEY_BYTES_MAX {
            return Err(refused(&format!("has {} bytes; at most {IDEMPOTENCY_KEY_BYTES_MAX} are allowed", key.len())));
        }
        if !key.iter().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(refused("must consist of printable ASCII characters"));
        }
        // Printable ASCII is UTF-8.
        String::from_utf8(key).map(Self).map_err(|_| refused("must consist of printable ASCII characters"))
    }

    /// What the client sent. It is not a key to work under where there are tenants: `ann:k1` is what [`scoped`](Self::scoped) makes of
    /// the key `k1` of ann.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key in the scope of `tenant`: a tenant that may not see the responses of another must not be able to name its keys. No two
    /// tenants share one, whatever they are called, and requests of no tenant have a scope of their own, which no tenant and no
    /// key can name. All three languages keep responses under these keys.
    ///
    /// ```
    /// # use resil::http::IdempotencyKey;
    /// let key = IdempotencyKey::required(Some(b"b:1"))?;
    /// assert_eq!(key.scoped(Some("ann")), "ann:b:1");
    /// assert_eq!(key.scoped(Some("ann:b")), "ann%3Ab:b:1");
    /// assert_eq!(key.scoped(Some("")), ":b:1");
    /// assert_eq!(key.scoped(None), "%:b:1");
    /// # Ok::<(), resil::Error>(())
    /// ```
    pub fn scoped(&self, tenant: Option<&str>) -> String {
        // Escaped, no tenant is a lone percent sign.
        let Some(tenant) = tenant else { return format!("%:{}", self.0) };
        let mut key = String::with_capacity(tenant.len() + 1 + self.0.len());
        for character in tenant.chars() {
            match character {
                // The first colon is where the tenant ends; a brace would end what a cluster looks at.
                '%' => key.push_str("%25"),
                ':' => key.push_str("%3A"),
                '}' => key.push_str("%7D"),
                _ => key.push(character),
            }
        }
        key.push(':');
        key.push_str(&self.0);
        key
    }

    /// [`scoped`](Self::scoped) for a caller with a tenant.
    pub fn of_tenant(&self, tenant: &str) -> String {
        self.scoped(Some(tenant))
    }
}

impl std::fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What stands in quotes. Parameters after it are allowed and mean nothing.
fn unquoted(rest: &[u8]) -> Result<Vec<u8>, Error> {
    let mut key = Vec::with_capacity(rest.len());
    let mut bytes = rest.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => {
                let after = bytes.next();
                return if after.is_none_or(|byte| byte == b';') {
                    Ok(key)
                } else {
                    Err(refused("goes on after its quotes"))
                };
            }
            b'\\' => match bytes.next() {
                Some(escaped @ (b'"' | b'\\')) => key.push(escaped),
                _ => return Err(refused("has a backslash that escapes nothing")),
            },
            _ => key.push(byte),
        }
    }
    Err(refused("has no closing quote"))
}

fn refused(reason: &str) -> Error {
    Error::InvalidArgument(format!("the header Idempotency-Key {reason}"))
}

/// What makes a request this request: 64 hexadecimal digits (SHA-256) of method, path and body, the same in every process
/// and version. Requests under one key that differ in it are a mismatch.
///
/// The path is taken as it is: with the query, if that makes a difference. An empty query is none, because some servers do not
/// tell `/a?` from `/a`:
///
/// ```
/// # use resil::http::fingerprint;
/// assert_eq!(fingerprint("GET", "/a?", b""), fingerprint("GET", "/a", b""));
/// assert_ne!(fingerprint("GET", "/a??", b""), fingerprint("GET", "/a", b""));
/// ```
pub fn fingerprint(method: &str, path: &str, body: &[u8]) -> String {
    let path = match path.split_once('?') {
        Some((before, "")) => before,
        _ => path,
    };
    let mut hash = Sha256::new();
    // Lengths first: "POST" "/a" and "POST/" "a" are different requests.
    for part in [method.as_bytes(), path.as_bytes(), body] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
