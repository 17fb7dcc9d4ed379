//! The protocol as far as a [`connection`](super::connection) needs it: commands are written where they are sent from, and replies
//! are read where they arrive, in both versions of the protocol.
//!
//! A reader of its own, and not redis-rs': that one suspends and resumes in the middle of a value, which costs more for five
//! integers than the server takes to make them. Here a value is read when all of it is there.

use resil_wire::command::Command;
use resil_wire::reply::Value;
use resil_wire::words::Words;

use super::trouble::{Trouble, of_server};

/// A reply of ours has two or three levels.
const DEPTH_MAX: u32 = 16;
/// What a server allows a string to have.
const BYTES_MAX: usize = 512 << 20;
/// More room than this is made for elements that are announced only when they are there.
const TRUSTED_LEN: usize = 64;

/// Appends `command` to what is to be sent.
pub(super) fn write(command: &Command<'_>, outbox: &mut Vec<u8>) {
    write_words(outbox, |words| command.encode(words));
}

/// The same for a command that is not one of ours.
pub(super) fn write_plain(words: &[impl AsRef<[u8]>], outbox: &mut Vec<u8>) {
    write_words(outbox, |writer| words.iter().for_each(|word| writer.word(word.as_ref())));
}

fn write_words(outbox: &mut Vec<u8>, write: impl FnOnce(&mut Writer<'_>)) {
    // How many words there are is known afterwards. Most commands have less than ten: one digit.
    let digit = outbox.len() + 1;
    outbox.extend_from_slice(b"*0\r\n");
    let mut writer = Writer { outbox, words: 0 };
    write(&mut writer);
    let words = writer.words;
    match u8::try_from(words) {
        Ok(few @ 0..10) => outbox[digit] = b'0' + few,
        _ => drop(outbox.splice(digit..=digit, words.to_string().into_bytes())),
    }
}

struct Writer<'a> {
    outbox: &'a mut Vec<u8>,
    words: usize,
}

impl Words for Writer<'_> {
    fn word(&mut self, word: &[u8]) {
        self.words += 1;
        self.outbox.push(b'$');
        write_length(self.outbox, word.len());
        self.outbox.extend_from_slice(b"\r\n");
        self.outbox.extend_from_slice(word);
        self.outbox.extend_from_slice(b"\r\n");
    }
}

fn write_length(outbox: &mut Vec<u8>, length: usize) {
    if length >= 10 {
        write_length(outbox, length / 10);
    }
    outbox.push(b'0' + (length % 10) as u8);
}

/// What a server says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// The reply to the oldest question.
    Reply(Result<Value, Trouble>),
    /// What nobody asked for.
    Push(Vec<Value>),
}

/// Not all of it is there yet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unread {
    Incomplete,
    /// This is not the protocol.
    Garbled,
}

/// Reads one thing off the front of `bytes`, and moves them on.
pub(super) fn read(bytes: &mut &[u8]) -> Result<Frame, Unread> {
    let mut rest = *bytes;
    let said = loop {
        match *rest.first().ok_or(Unread::Incomplete)? {
            b'-' => {
                rest = &rest[1..];
                break Frame::Reply(Err(trouble(line(&mut rest)?)));
            }
            b'!' => {
                rest = &rest[1..];
                break Frame::Reply(Err(trouble(blob(&mut rest)?.ok_or(Unread::Garbled)?)));
            }
            b'>' => {
                rest = &rest[1..];
                let push = elements(&mut rest, 1, 1)?.unwrap_or_default();
                // The only reply that is a push: nobody is subscribed unasked.
                let is_reply = matches!(push.first(), Some(Value::Text(kind)) if kind == b"ssubscribe");
                break if is_reply { Frame::Reply(Ok(Value::Array(push))) } else { Frame::Push(push) };
            }
            b'|' => {
                // Something about the reply, which follows.
                rest = &rest[1..];
                elements(&mut rest, 2, 1)?;
            }
            _ => break Frame::Reply(Ok(value(&mut rest, 0)?)),
        }
    };
    *bytes = rest;
    Ok(said)
}

/// What the older protocol cannot say (maps are arrays there) is left for the reader of the command, who knows.
fn value(bytes: &mut &[u8], depth: u32) -> Result<Value, Unread> {
    let (kind, rest) = bytes.split_first().ok_or(Unread::Incomplete)?;
    if depth > DEPTH_MAX {
        return Err(Unread::Garbled);
    }
    *bytes = rest;
    let null_or = |text: Option<&[u8]>| text.map_or(Value::Null, |text| Value::Text(text.to_vec()));
    Ok(match kind {
        b':' => Value::Integer(number(bytes)?),
        b'$' => null_or(blob(bytes)?),
        b'+' | b',' | b'(' => Value::Text(line(bytes)?.to_vec()),
        b'*' | b'~' | b'>' => elements(bytes, 1, depth + 1)?.map_or(Value::Null, Value::Array),
        b'%' => {
            let flat = elements(bytes, 2, depth + 1)?.ok_or(Unread::Garbled)?;
            let mut flat = flat.into_iter();
            Value::Map(std::iter::from_fn(|| flat.next().zip(flat.next())).collect())
        }
        b'_' => {
            line(bytes)?;
            Value::Null
        }
        b'#' => Value::Integer(i64::from(line(bytes)? == b"t")),
        // A verbatim text begins with its kind, `txt:`.
        b'=' => null_or(blob(bytes)?.map(|text| text.get(4..).unwrap_or_default())),
        b'|' => {
            elements(bytes, 2, depth + 1)?;
            value(bytes, depth + 1)?
        }
        // No command of ours replies with an error inside of something.
        b'-' => {
            line(bytes)?;
            Value::Null
        }
        b'!' => {
            blob(bytes)?;
            Value::Null
        }
        _ => return Err(Unread::Garbled),
    })
}

/// So many values as are announced, times `each`; `None` for the null of the older protocol.
fn elements(bytes: &mut &[u8], each: usize, depth: u32) -> Result<Option<Vec<Value>>, Unread> {
    let announced = number(bytes)?;
    if announced == -1 {
        return Ok(None);
    }
    let length = usize::try_from(announced).ok().and_then(|length| length.checked_mul(each)).ok_or(Unread::Garbled)?;
    let mut elements = Vec::with_capacity(length.min(TRUSTED_LEN));
    for _ in 0..length {
        elements.push(value(bytes, depth)?);
    }
    Ok(Some(elements))
}

/// Bytes with their length before them.
fn blob<'a>(bytes: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Unread> {
    let length = number(bytes)?;
    if length == -1 {
        return Ok(None);
    }
    let length = usize::try_from(length).ok().filter(|length| *length <= BYTES_MAX).ok_or(Unread::Garbled)?;
    let (text, rest) = bytes.split_at_checked(length).ok_or(Unread::Incomplete)?;
    *bytes = match rest {
        [b'\r', b'\n', rest @ ..] => rest,
        [] | [b'\r'] => return Err(Unread::Incomplete),
        _ => return Err(Unread::Garbled),
    };
    Ok(Some(text))
}

fn line<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], Unread> {
    let end = bytes.iter().position(|byte| *byte == b'\r').ok_or(Unread::Incomplete)?;
    match bytes.get(end + 1) {
        None => Err(Unread::Incomplete),
        Some(b'\n') => {
            let line = &bytes[..end];
            *bytes = &bytes[end + 2..];
            Ok(line)
        }
        Some(_) => Err(Unread::Garbled),
    }
}

/// A whole line that is a number.
fn number(bytes: &mut &[u8]) -> Result<i64, Unread> {
    let is_negative = bytes.first() == Some(&b'-');
    let mut number = 0i64;
    for (index, byte) in bytes.iter().enumerate().skip(usize::from(is_negative)) {
        match byte {
            b'0'..=b'9' => {
                // Downwards, since the lowest number has no positive one.
                let digit = i64::from(byte - b'0');
                number = number.checked_mul(10).and_then(|tens| tens.checked_sub(digit)).ok_or(Unread::Garbled)?;
            }
            b'\r' if index > usize::from(is_negative) => {
                return match bytes.get(index + 1) {
                    None => Err(Unread::Incomplete),
                    Some(b'\n') => {
                        *bytes = &bytes[index + 2..];
                        if is_negative { Ok(number) } else { number.checked_neg().ok_or(Unread::Garbled) }
                    }
                    Some(_) => Err(Unread::Garbled),
                };
            }
            _ => return Err(Unread::Garbled),
        }
    }
    Err(Unread::Incomplete)
}

/// `CODE and words`
pub(super) fn trouble(error: &[u8]) -> Trouble {
    let text = String::from_utf8_lossy(error);
    let (code, words) = text.split_once(' ').unwrap_or((&text, ""));
    of_server(code, words)
}

#[cfg(test)]
#[path = "tests/resp.rs"]
mod tests;
