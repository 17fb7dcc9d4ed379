//! What a verb is about: a name, as the SDKs use it, or a key. And who changes something, and why.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use resil::operator::KeyKind;

use crate::failure::Failure;
use crate::output::{confirm, escaped, unescaped};

#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct Target {
    /// The name, as the SDKs use it
    name: Option<String>,
    /// The key itself, as lists show it: \xHH stands for a byte, \\ for a backslash
    #[arg(long)]
    key: Option<OsString>,
}

/// A key, with the name that the SDKs have for it, if they have one.
pub struct Named {
    pub key: Vec<u8>,
    pub name: Option<String>,
}

impl Named {
    pub fn of(kind: KeyKind, key: Vec<u8>) -> Self {
        let name = kind.name(&key);
        Self { key, name }
    }

    /// How it is shown to people.
    pub fn shown(&self) -> Vec<u8> {
        self.name.as_ref().map_or_else(|| self.key.clone(), |name| name.clone().into_bytes())
    }
}

pub fn read_key(key: &OsString) -> Result<Vec<u8>, Failure> {
    unescaped(key.as_bytes()).map_err(|wrong| Failure::Usage(format!("--key: {wrong}")))
}

impl Target {
    pub fn named(&self, kind: KeyKind) -> Result<Named, Failure> {
        let key = match (&self.name, &self.key) {
            (Some(name), _) => kind.key(name)?,
            (None, Some(key)) => read_key(key)?,
            (None, None) => return Err(Failure::Usage("a name or --key is needed".to_owned())),
        };
        Ok(Named::of(kind, key))
    }
}

impl Target {
    /// The stored policy of the name, if it is a name: it may have a breaker.
    pub fn policy(&self) -> Result<Option<Named>, Failure> {
        let policy = |name: &String| Ok(Named { key: KeyKind::Policy.key(name)?, name: Some(name.clone()) });
        self.name.as_ref().map(policy).transpose()
    }
}

/// Who acts.
#[derive(Args)]
pub struct ActorArgs {
    /// Who does it, for events and the audit; $USER@host by default
    #[arg(long)]
    actor: Option<String>,
}

impl ActorArgs {
    pub fn actor(&self) -> String {
        self.actor.clone().filter(|actor| !actor.is_empty()).unwrap_or_else(|| {
            let user =
                ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()));
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            format!("{}@{host}", user.unwrap_or_else(|| "unknown".to_owned()))
        })
    }
}

fn reason(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("a reason is a few words, for those who read the audit".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

/// Who changes something, and why.
#[derive(Args)]
pub struct ChangeArgs {
    #[command(flatten)]
    pub by: ActorArgs,
    /// Why; goes to events and the audit
    #[arg(long, value_parser = reason)]
    pub reason: String,
    /// Does not ask
    #[arg(long, short)]
    pub yes: bool,
}

impl ChangeArgs {
    pub fn confirm(&self, what: &str, key: &[u8]) -> Result<(), Failure> {
        confirm(&format!("{what} {}", quoted(key)), self.yes)
    }
}

/// How a key stands in a sentence.
pub fn quoted(key: &[u8]) -> String {
    escaped(key)
}
