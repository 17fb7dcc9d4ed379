//! Commands as a user types them, with panics that show what was sent.

use redis::{ConnectionLike, RedisError, Value};

/// Sends one command and hands back whatever came.
pub fn reply<C, A>(connection: &mut C, words: &[A]) -> Result<Value, RedisError>
where
    C: ConnectionLike,
    A: AsRef<[u8]>,
{
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(word.as_ref());
    }
    command.query(connection)
}

/// Sends a command that must succeed.
#[track_caller]
pub fn ok<C, A>(connection: &mut C, words: &[A]) -> Value
where
    C: ConnectionLike,
    A: AsRef<[u8]>,
{
    match reply(connection, words) {
        Ok(value) => value,
        Err(error) => panic!("{}: {}", shown(words), error_line(&error)),
    }
}

/// Sends a command that must fail, and gives the error as it went over the wire, code first.
#[track_caller]
pub fn error_text<C, A>(connection: &mut C, words: &[A]) -> String
where
    C: ConnectionLike,
    A: AsRef<[u8]>,
{
    match reply(connection, words) {
        Ok(value) => panic!("{}: expected an error, got {value:?}", shown(words)),
        Err(error) => error_line(&error),
    }
}

/// The client takes the code apart from the text; tests want the line the server wrote.
pub fn error_line(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(code), None) => code.to_owned(),
        (None, _) => error.to_string(),
    }
}

fn shown<A: AsRef<[u8]>>(words: &[A]) -> String {
    let words: Vec<String> = words.iter().map(|word| word.as_ref().escape_ascii().to_string()).collect();
    words.join(" ")
}
