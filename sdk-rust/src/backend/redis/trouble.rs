//! What went wrong with a command, sorted by what is to be done about it.
//!
//! # The promise
//! Whatever the server or the network says becomes one [`Trouble`], and each becomes one [`Error`] of the family. Texts
//! of the server are passed on only where they speak of the caller's own arguments; all others are fixed sentences, since
//! redirections and I/O errors name addresses.

use redis::{ErrorKind, RedisError, Value};

use crate::error::Error;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The server's last word: asking again changes nothing.
    Refused(Error),
    /// A reader asked to write while others read or wait.
    Deadlock,
    /// The slot lives elsewhere, as `host:port`.
    Moved { slot: u16, node: String },
    /// The slot is on its way elsewhere; this once, ask there.
    Ask { node: String },
    /// The server is a replica now: another server is the primary.
    Demoted,
    /// The verdict is there, but too large for a message.
    AskAgain,
    /// Not now, but the connection is fine.
    Later(&'static str),
    /// Not now, and it is worth looking whether the server is still there.
    Unwell(&'static str),
    /// The connection is over.
    Gone(&'static str),
    /// No reply in time.
    Late,
}

pub(super) const AWAY_AT_FIRST: Error = Error::BackendUnavailable("no connection could be made yet");
pub(super) const RUNTIME_ENDED_TEXT: &str =
    "the tokio runtime that the client was asked to keep its connection on has ended";
pub(super) const RUNTIME_ENDED: Error = Error::BackendUnavailable(RUNTIME_ENDED_TEXT);
pub(super) const CLOSED: Error = Error::BackendUnavailable("the client was closed");
const LATE: Error = Error::BackendUnavailable("the server did not reply in time");
const DEMOTED: Error = Error::BackendUnavailable("the server is a replica");

/// A fence cannot be raised at a server: its clock, or that of the server that granted the fence, is wrong.
pub(crate) const TOO_FAR_AHEAD: &str =
    "CLOCK: the fence is far ahead of the clock of the server; compare the clocks of the servers";

const REBOUND_TEXT: &str = "the connection to bind to was replaced meanwhile";
const ON_ITS_WAY_TEXT: &str = "the key is on its way to another node";
pub(super) const KEY_MOVES: Trouble = Trouble::Later(ON_ITS_WAY_TEXT);
/// Over by themselves in a moment, and no reason to warn.
pub(super) const PASSING: [&str; 2] = [REBOUND_TEXT, ON_ITS_WAY_TEXT];

impl Trouble {
    /// `key` is what the command was about.
    pub fn into_error(self, key: Option<&[u8]>) -> Error {
        match self {
            Self::Refused(error) => error,
            Self::Deadlock => Error::Deadlock { name: String::from_utf8_lossy(key.unwrap_or_default()).into() },
            Self::Moved { .. } | Self::Ask { .. } => Error::BackendUnavailable(
                "the key lives on another node of the cluster; a cluster is reached with redis+cluster://",
            ),
            Self::Demoted => DEMOTED,
            Self::Later(text) | Self::Unwell(text) | Self::Gone(text) => Error::BackendUnavailable(text),
            Self::Late => LATE,
            Self::AskAgain => Error::BackendUnavailable("the verdict was too large for a message"),
        }
    }

    /// At the first connection these fail at once: no later attempt would go better.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Refused(_))
    }
}

/// A reply, or what is wrong.
pub(super) fn judged(result: Result<Value, RedisError>) -> Result<Value, Trouble> {
    match result {
        Ok(Value::ServerError(error)) => Err(of_server(error.code(), error.details().unwrap_or_default())),
        Ok(value) => Ok(value),
        Err(error) => Err(error.into()),
    }
}

impl From<RedisError> for Trouble {
    fn from(error: RedisError) -> Self {
        if let Some(code) = error.code() {
            return of_server(code, error.detail().unwrap_or_default());
        }
        match error.kind() {
            _ if error.is_timeout() => Self::Late,
            ErrorKind::AuthenticationFailed => Self::Refused(DENIED_ENTRY),
            ErrorKind::InvalidClientConfig => Self::Gone("the name of the server is not known, or TLS is not set up"),
            ErrorKind::Parse => Self::Gone("the server's reply could not be read"),
            ErrorKind::RESP3NotSupported => Self::Refused(Error::InvalidArgument(
                "the server does not speak RESP3; ?protocol=resp2 at the end of the URL asks for RESP2".to_owned(),
            )),
            ErrorKind::ClusterConnectionNotFound => Self::Unwell("a node of the cluster cannot be reached"),
            // Only its text distinguishes it from a connection that broke.
            ErrorKind::Io if error.to_string().contains("peer certificate") => Self::Refused(Error::InvalidArgument(
                "the server's certificate is not trusted by the roots of this system, or is not for this host"
                    .to_owned(),
            )),
            ErrorKind::Io if error.is_connection_refusal() => Self::Gone("the connection was refused"),
            _ => Self::Gone("the connection broke"),
        }
    }
}

const DENIED_ENTRY: Error = Error::PermissionDenied("in: the password, or the user, is not right or not given");

pub(super) fn of_server(code: &str, text: &str) -> Trouble {
    match code {
        "ERR" if text.starts_with("unknown command") => Trouble::Refused(Error::ModuleMissing),
        "AGAIN" => Trouble::AskAgain,
        "NOTLISTENING" => Trouble::Gone("nobody listens for the verdict of a wait"),
        // It was bound to a connection that was there when the command was made.
        "ERR" if text.starts_with("BOUNDTO ") => Trouble::Later(REBOUND_TEXT),
        "ERR" if text.starts_with("max number of clients") => Trouble::Unwell("the server takes no more connections"),
        "NOPERM" => Trouble::Refused(Error::PermissionDenied("this command or key")),
        "NOAUTH" | "WRONGPASS" => Trouble::Refused(DENIED_ENTRY),
        "DENIED" => Trouble::Refused(Error::PermissionDenied("in: it is in protected mode")),
        "DEADLOCK" => Trouble::Deadlock,
        "SUPERSEDED" => Trouble::Refused(Error::Cancelled),
        "MOVED" | "ASK" => redirection(code, text),
        "READONLY" => Trouble::Demoted,
        // By an operator, who meant it; else because the server changed its role.
        "UNBLOCKED" if text.contains("CLIENT UNBLOCK") => Trouble::Refused(Error::Cancelled),
        "UNBLOCKED" => Trouble::Demoted,
        "TRYAGAIN" => KEY_MOVES,
        "CLUSTERDOWN" => Trouble::Later("the cluster is down"),
        "OOM" => Trouble::Later("the server is out of memory"),
        "MISCONF" => Trouble::Later("the server cannot write to its disk, and refuses changes"),
        "NOREPLICAS" => Trouble::Later("the server has too few replicas, and refuses changes"),
        "BUSY" => Trouble::Later("the server is busy running a script"),
        "RETURNING" => Trouble::Later("the server may have forgotten locks, and grants none yet"),
        "CLOCK" => Trouble::Later(TOO_FAR_AHEAD),
        "LOADING" => Trouble::Unwell("the server is loading its data"),
        "MASTERDOWN" => Trouble::Unwell("the server is a replica without its primary"),
        // ERR, WRONGTYPE, PHASE, CROSSSLOT and whatever else speaks of what was asked for.
        _ => Trouble::Refused(Error::refused_by_code(code, text)),
    }
}

/// `MOVED 3999 host:port`
fn redirection(code: &str, text: &str) -> Trouble {
    let mut words = text.split_ascii_whitespace();
    match (words.next().and_then(|slot| slot.parse().ok()), words.next()) {
        (Some(slot), Some(node)) if code == "MOVED" => Trouble::Moved { slot, node: node.to_owned() },
        (Some(_), Some(node)) => Trouble::Ask { node: node.to_owned() },
        _ => Trouble::Later("a node redirected to nowhere"),
    }
}

#[cfg(test)]
#[path = "tests/trouble.rs"]
mod tests;
