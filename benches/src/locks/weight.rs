//! What a held lock takes in memory, beside a string with an expiry.

use resil_harness::Server;

use super::pairs::GRANTED;
use crate::load::Reply;
use crate::weight::{KEY_BYTES, weigh};

pub use crate::weight::{KEYS as LOCKS, Weight};

const OWNER_BYTES: usize = 16;

impl Weight {
    /// Less the bytes of the key and of the owner.
    pub fn beyond_names(&self) -> f64 {
        self.whole - (KEY_BYTES + OWNER_BYTES) as f64
    }
}

pub fn ours(server: &Server) -> Weight {
    weigh(server, &[("RES.LOCK ACQUIRE {k} owner:{n} 1h", GRANTED)])
}

pub fn set_nx(server: &Server) -> Weight {
    weigh(server, &[("SET {k} owner:{n} NX PX 3600000", Reply::line("+OK"))])
}
