//! `RES.HEARTBEAT`: one sign of life for everything that is bound to the connection.

use resil_core::lock::Reason;
use resil_core::session::Loss;

use crate::argv::{Argv, Refused};
use crate::command::{Allowed, Arguments};
use crate::holding::read_reason;
use crate::reply::{Sink, Unexpected, Value};
use crate::words::Words;

/// It has no arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeartbeatCall;

impl<'a> Arguments<'a> for HeartbeatCall {
    fn parse(argv: Argv<'a>, _: &Allowed) -> Result<Self, Refused> {
        argv.finish().map(|()| Self)
    }

    fn check(&self, _: &Allowed) -> Result<(), Refused> {
        Ok(())
    }

    fn encode(&self, _: &mut impl Words) {}

    fn key(&self) -> Option<&'a [u8]> {
        None
    }
}

/// `[number bound, [[key, fence, reason], ...]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    pub bound: i64,
    pub losses: Vec<Lost>,
}

/// A bound holding that was lost since the last heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    pub key: Vec<u8>,
    pub fence: u64,
    pub reason: Reason,
}

impl From<Loss> for Lost {
    fn from(loss: Loss) -> Self {
        Self { key: loss.key.into_vec(), fence: loss.fence, reason: loss.reason }
    }
}

impl From<(usize, Vec<Loss>)> for Heartbeat {
    /// How many are bound, and what was lost.
    fn from((bound, losses): (usize, Vec<Loss>)) -> Self {
        Self { bound: bound as i64, losses: losses.into_iter().map(Lost::from).collect() }
    }
}

impl Heartbeat {
    pub fn write(&self, sink: &mut (impl Sink + ?Sized)) {
        sink.array(2);
        sink.integer(self.bound);
        sink.array(self.losses.len());
        for lost in &self.losses {
            sink.array(3);
            sink.text(&lost.key);
            sink.integer(lost.fence.cast_signed());
            sink.text(lost.reason.text().as_bytes());
        }
    }

    pub fn read(value: Value) -> Result<Self, Unexpected> {
        let mut fields = value.into_fields()?;
        let bound = fields.integer()?;
        let losses = fields.next()?.into_array()?.into_iter().map(Lost::read).collect::<Result<_, _>>()?;
        fields.finish(Self { bound, losses })
    }
}

impl Lost {
    fn read(value: Value) -> Result<Self, Unexpected> {
        let mut fields = value.into_fields()?;
        let (key, fence) = (fields.text()?, fields.number()?);
        let reason = read_reason(&mut fields)?;
        fields.finish(Self { key, fence, reason })
    }
}
