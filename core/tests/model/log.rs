//! The sliding window as one would explain it: a list with the instant of every single cell, counted anew each time.
//! It imports nothing from the crate under test.

/// What was said of a window; `wait_us` is `None` for never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    pub granted: usize,
    pub remaining: usize,
    pub wait_us: Option<i64>,
    pub reset_us: i64,
    /// Whether anything was written down.
    pub stored: bool,
}

#[derive(Debug, Clone, Copy)]
pub enum Request {
    Take(usize),
    UpTo(usize),
    Peek,
}

/// One instant per cell, in the order they were admitted.
#[derive(Debug, Clone, Default)]
pub struct Log {
    pub cells: Vec<i64>,
}

/// Time may seem to run back by this much; more is a clock that was set.
const JITTER_US: i64 = 1_000_000;

impl Log {
    pub fn call(&mut self, limit: usize, period_us: i64, request: Request, now_us: i64) -> Reply {
        let newest_us = self.cells.iter().copied().max().unwrap_or(i64::MIN);
        let clock_was_set_back = newest_us > now_us + JITTER_US;
        let seen: Vec<i64> = self.cells.iter().map(|at_us| (*at_us).min(now_us + JITTER_US)).collect();
        // For a key time never runs backwards: within the jitter, now is when the newest cell came.
        let here_us = seen.iter().copied().fold(now_us, i64::max);
        let mut inside: Vec<i64> = seen.into_iter().filter(|at_us| *at_us > here_us - period_us).collect();

        let free = limit.saturating_sub(inside.len());
        let (granted, missing) = match request {
            Request::Take(cells) if cells <= free => (cells, 0),
            Request::Take(cells) => (0, cells),
            Request::UpTo(cells) => (cells.min(free), (cells > free) as usize),
            Request::Peek => (0, (free == 0) as usize),
        };
        inside.extend(std::iter::repeat_n(here_us, granted));
        let reply = Reply {
            granted: if matches!(request, Request::Peek) { free } else { granted },
            remaining: free - granted,
            wait_us: wait(&inside, limit, missing, period_us, now_us),
            reset_us: inside.iter().max().map_or(0, |newest_us| newest_us + period_us - now_us),
            stored: granted > 0 || clock_was_set_back && !matches!(request, Request::Peek),
        };
        if reply.stored {
            self.cells = inside;
        }
        reply
    }
}

/// How long until `missing` more cells fit beside those inside.
fn wait(inside: &[i64], limit: usize, missing: usize, period_us: i64, now_us: i64) -> Option<i64> {
    if missing > limit {
        return None;
    }
    let too_many = (inside.len() + missing).saturating_sub(limit);
    match too_many.checked_sub(1) {
        Some(last_to_leave) if missing > 0 => Some(inside[last_to_leave] + period_us - now_us),
        _ => Some(0),
    }
}
