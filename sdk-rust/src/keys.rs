//! What things are called at the server, in one place: every language, and an operator with redis-cli, finds them there.
//!
//! | what | key |
//! | --- | --- |
//! | lock | `resil:lock:{<name>}` |
//! | shared bulkhead | `resil:bulkhead:{<name>}` |
//! | breaker | `resil:breaker:{<name>}` |
//! | ledger of dead letters | `resil:dlq:{<name>}` |
//! | stored policy | `resil:policy:{<name>}` |
//! | limit | `resil:limit:<name>:{<key>}` |
//! | idempotent work | `resil:idemp:<name>:{<key>}` |
//! | processed event | `resil:once:<name>:{<key>}` |
//! | cached value | `resil:cache:<name>:{<key>}`, with versions `resil:vcache:<name>:{<key>}`; in a cluster see [`layout`](crate::cache) |
//! | cache name | `resil:cache:{<name>}` |
//!
//! What stands between the braces decides on which node of a cluster it lives: the keys of one customer can be together,
//! and those of one limit are spread. A prefix keeps them apart from the application's own keys, and from each other.

use crate::error::Error;

/// `resil:<kind>:{<name>}`
pub(crate) fn named(kind: &str, name: &str) -> String {
    format!("resil:{kind}:{{{name}}}")
}

/// The name in such a key, if it is one.
pub(crate) fn name_in(kind: &str, key: &[u8]) -> Option<String> {
    let key = std::str::from_utf8(key).ok()?;
    let name = key.strip_prefix("resil:")?.strip_prefix(kind)?.strip_prefix(":{")?.strip_suffix('}')?;
    check_name(name).is_ok().then(|| name.to_owned())
}

/// `resil:<kind>:<name>:{<key>}`
pub(crate) fn under(kind: &str, name: &str, key: &str) -> String {
    format!("resil:{kind}:{name}:{{{key}}}")
}

/// A key that somebody names work or an event by.
pub(crate) fn check_key(key: &str) -> Result<(), Error> {
    if key.is_empty() { Err(Error::InvalidArgument("key must not be empty".to_owned())) } else { Ok(()) }
}

/// A name that keys stand under must leave no doubt where they begin.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    if name.is_empty() || name.contains(['{', '}']) {
        return Err(Error::invalid("name", "must not be empty, nor contain { or }: the key stands between them"));
    }
    Ok(())
}

/// The name that stands in settings, for those of a file, is the one that a handle is made with, or is not there.
pub(crate) fn same_name(name: &str, in_settings: Option<&str>) -> Result<(), Error> {
    match in_settings {
        Some(other) if other != name => {
            Err(Error::invalid("name", format!("must be left out: it is given apart, as {name:?}, got {other:?}")))
        }
        _ => Ok(()),
    }
}
