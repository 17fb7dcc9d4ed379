//! How a lease ends, and why a holder does not hold any more.

use alloc::boxed::Box;

use crate::time::Span;

/// How a holding ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By its owner.
    Released,
    /// Its lease ran out.
    Expired,
    /// By an operator.
    Broken,
    /// The connection it was bound to closed.
    Closed,
}

impl End {
    pub const ALL: [Self; 4] = [Self::Released, Self::Expired, Self::Broken, Self::Closed];
}

/// A holding that ended in this step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    pub owner: Box<[u8]>,
    pub fence: u64,
    pub held: Span,
    pub how: End,
}

/// Very many holdings that ended as one: each is looked at, and freed, when its turn comes.
pub type Crowd = Box<dyn Iterator<Item = Ending> + Send>;

/// Why an owner does not hold (any more).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Expired,
    Taken,
    Broken,
    /// The key was evicted. Only a server that saw it can say so.
    Evicted,
    Absent,
    /// It let go itself.
    Released,
    /// The connection it was bound to closed.
    Closed,
    /// It has committed its result.
    Committed,
    /// It gave up.
    Aborted,
    /// It has published what it loaded.
    Published,
    /// What it loads was declared out of date.
    Invalidated,
    /// It is done already.
    Done,
}

impl Reason {
    pub const ALL: [Self; 12] = [
        Self::Expired,
        Self::Taken,
        Self::Broken,
        Self::Evicted,
        Self::Absent,
        Self::Released,
        Self::Closed,
        Self::Committed,
        Self::Aborted,
        Self::Published,
        Self::Invalidated,
        Self::Done,
    ];

    /// The inverse of [`Self::text`].
    pub fn from_text(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.text().as_bytes() == text)
    }

    pub fn text(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Taken => "taken",
            Self::Broken => "broken",
            Self::Evicted => "evicted",
            Self::Absent => "absent",
            Self::Released => "released",
            Self::Closed => "closed",
            Self::Committed => "committed",
            Self::Aborted => "aborted",
            Self::Published => "published",
            Self::Invalidated => "invalidated",
            Self::Done => "done",
        }
    }
}

impl From<End> for Reason {
    fn from(end: End) -> Self {
        match end {
            End::Released => Self::Released,
            End::Expired => Self::Expired,
            End::Broken => Self::Broken,
            End::Closed => Self::Closed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_read_back_and_nothing_else_is() {
        assert_eq!(Reason::ALL.len(), Reason::Done as usize + 1);
        for one in Reason::ALL {
            assert_eq!(Reason::from_text(one.text().as_bytes()), Some(one));
        }
        for text in ["", "Open", "EXPIRED", "counted ", "other"] {
            assert_eq!(Reason::from_text(text.as_bytes()), None, "{text}");
        }
    }
}
