//! `RES._APPLY`: how a resolved change travels from a primary to its replicas and through an append-only file.
//!
//! `RES._APPLY key version bytes [key version bytes ...]`: the bytes are those of `resil_core::codec`. Several keys of
//! one atomic step travel in one command.

use resil_core::codec::{self, Change, VERSION};

use crate::argv::{Argv, Refused};
use crate::bound::Number;
use crate::pages;

const VERSIONS: Number = Number::new("version", 1..=i64::MAX);

/// One key's change, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    Change(Change),
    /// Written by a newer Resil: to be logged and counted, not obeyed.
    UnknownVersion(i64),
}

/// Parses what follows `RES._APPLY`: each key with its change, in order.
pub fn parse<'a>(args: &'a [&'a [u8]]) -> Result<Vec<(&'a [u8], Applied)>, Refused> {
    let mut argv = Argv::new(args, &pages::APPLY);
    let mut changes = Vec::with_capacity(args.len() / 3);
    loop {
        let key = argv.bytes("key")?;
        let version = VERSIONS.take(&mut argv)?;
        let bytes = argv.bytes("bytes")?;
        let applied = if version == VERSION as i64 {
            Applied::Change(codec::decode(bytes).map_err(Refused::new)?)
        } else {
            Applied::UnknownVersion(version)
        };
        changes.push((key, applied));
        if argv.is_empty() {
            return Ok(changes);
        }
    }
}
