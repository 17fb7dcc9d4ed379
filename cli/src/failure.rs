//! How a verb can end, and the exit code of each end.

use std::io::Write;
use std::process::ExitCode;
use std::sync::OnceLock;

use resil::{Code, Error};

use crate::output::{escaped, safe_json};

/// Hosts and ports of the server, never a user or a password.
pub static SERVER: OnceLock<String> = OnceLock::new();

/// Why a verb did not do what was asked.
#[derive(Debug)]
pub enum Failure {
    /// It was refused, or what was asked is not so: 1.
    Refused(String),
    /// The arguments are wrong: 2.
    Usage(String),
    /// The server cannot be reached, or cannot be used: 3.
    Unreachable(String),
    /// There is no such thing, so nothing was done: 4.
    NotThere(String),
    /// Everything was said already: 1.
    Said,
    /// The reader of the output is gone: 0, and nothing is said.
    BrokenPipe,
}

impl Failure {
    fn code(&self) -> u8 {
        match self {
            Self::BrokenPipe => 0,
            Self::Refused(_) | Self::Said => 1,
            Self::Usage(_) => 2,
            Self::Unreachable(_) => 3,
            Self::NotThere(_) => 4,
        }
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Refused(text) | Self::Usage(text) | Self::Unreachable(text) | Self::NotThere(text) => Some(text),
            Self::Said | Self::BrokenPipe => None,
        }
    }

    /// One line on standard error: text, or with `--json` an object.
    pub fn report(&self, is_json: bool) -> ExitCode {
        if let Some(text) = self.text() {
            // A user that forgot to name the server sees which one was tried.
            let server = SERVER.get().filter(|_| matches!(self, Self::Unreachable(_)));
            let line = if is_json {
                let mut error = serde_json::json!({ "error": text, "exitCode": self.code() });
                if let Some(server) = server {
                    error["server"] = serde_json::json!(server);
                }
                safe_json(&error.to_string())
            } else {
                let server = server.map(|server| format!("{server}: ")).unwrap_or_default();
                format!("resil: {}", escaped(format!("{server}{text}").as_bytes()))
            };
            let _ = writeln!(std::io::stderr(), "{line}");
        }
        ExitCode::from(self.code())
    }
}

/// Whether an error says that the server is no help: away, without the module, or closed to this user.
pub fn is_away(error: &Error) -> bool {
    match error {
        Error::PermissionDenied(what) => what.starts_with("in:"),
        other => matches!(other.code(), Code::BackendUnavailable | Code::Timeout | Code::ModuleMissing),
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error.code() {
            _ if is_away(&error) => Self::Unreachable(text),
            Code::InvalidArgument | Code::InvalidPolicy => Self::Usage(text),
            Code::PermissionDenied => {
                Self::Refused(format!("{text}; ACL LOG of the server says which, docs/operations.md has rules to copy"))
            }
            _ => Self::Refused(text),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::Refused(error.to_string()),
        }
    }
}
