//! What the model keeps, and what it says.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    Write,
    Read,
    Permit(usize),
}

#[derive(Debug, Clone)]
pub struct Wanted {
    pub want: Want,
    pub priority: u8,
    pub lease: i64,
    pub meta: Vec<u8>,
    pub bind: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub owner: Vec<u8>,
    pub meta: Vec<u8>,
    pub fence: u64,
    pub since: i64,
    pub end: i64,
    pub lease: i64,
    pub writes: bool,
}

#[derive(Debug, Clone)]
pub struct Stands {
    pub id: u64,
    pub owner: Vec<u8>,
    pub since: i64,
    pub until: i64,
    /// Of the place, not of the call that has it now: its priority, when it was taken, and how many were taken before.
    pub priority: u8,
    pub joined: i64,
    pub arrival: u64,
    pub wanted: Wanted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Over {
    pub owner: Vec<u8>,
    pub fence: u64,
    pub at: i64,
    pub held: i64,
    pub how: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Got {
    pub fence: u64,
    pub lease: i64,
    pub waited: i64,
    pub active: usize,
    pub queued: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Full {
    pub holder: Vec<u8>,
    pub remaining: i64,
    pub retry_after: i64,
    pub active: usize,
    pub queued: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Granted(Got),
    Refused(Full),
    Queued,
    Deadlock,
    Lost(&'static str),
    Released(i64),
    Broke(usize),
    Was(bool),
    Nothing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reported {
    Granted(u64, Vec<u8>, Got, Option<u64>),
    TimedOut(u64, Full),
    Superseded(u64),
}
