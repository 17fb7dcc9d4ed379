//! For tests: a clock to drive, a script to play, raw commands.
//!
//! - [`Clock::driven`]: time that stands still until the test lets it go on.
//! - [`Script`]: a server with the replies that a test lists. It remembers the commands.
//! - `memory://` is often all that a test needs: the same state machines as in the server.
//! - [`raw`]: a command as words.

mod at_once;
mod script;

pub use resil_wire::reply::Value;

pub use self::script::{Reply, Script};
pub use crate::clock::Clock;

use resil_core::Instant;
use resil_wire::command::{Allowed, Command};

use crate::backend::Backend;
use crate::client::Client;
use crate::error::Error;

/// A command as words, its name first, and what comes back, on whatever backend the client has. One with WAIT waits.
pub async fn raw(client: &Client, words: &[impl AsRef<[u8]>]) -> Result<Value, Error> {
    let words: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
    let command = parse(&words)?;
    let backend = client.backend();
    let reply = if command.waits().is_some() { backend.wait(&command).await? } else { backend.call(&command).await? };
    Ok(Value::written(|sink| reply.write(sink)))
}

/// The same on `memory://`, `at_us` microseconds after the epoch instead of at the clock's present, and without waiting:
/// for those who play what happened at given instants, also set back.
pub fn raw_at(client: &Client, words: &[impl AsRef<[u8]>], at_us: i64) -> Result<Value, Error> {
    let Backend::Memory(memory) = client.backend() else {
        return Err(Error::InvalidArgument("only memory:// can be asked at another instant".to_owned()));
    };
    let words: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
    let reply = memory.call_at(&parse(&words)?, Instant::from_us(at_us))?;
    Ok(Value::written(|sink| reply.write(sink)))
}

fn parse<'a>(words: &'a [&'a [u8]]) -> Result<Command<'a>, Error> {
    Command::parse(words, Allowed::default()).map_err(|refused| {
        let text = refused.text();
        Error::InvalidArgument(text.strip_prefix("ERR ").unwrap_or(text).to_owned())
    })
}
