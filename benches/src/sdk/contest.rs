//! Rows that do the same, run in turns: a millisecond or less each, many rounds, so that all meet the same weather.
//!
//! Of the rounds the fastest is what a row costs when nobody disturbs it, and what bars are judged by. The median is shown beside
//! it: where the two are far apart, the machine was busy.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::runtime::Runtime;

/// Calls of a row in one round.
pub const CALLS: u32 = 2_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    Ours,
    Peer,
    /// Something to hold the others against; no bar is judged by it.
    Measure,
}

pub struct Row {
    pub name: &'static str,
    pub whose: Whose,
    pub run: Box<dyn FnMut(u32) -> Spent>,
}

#[derive(Debug, Clone, Copy)]
pub struct Spent {
    pub time: Duration,
    pub allocations: u64,
}

/// What is held against what, and under which bar.
#[derive(Debug, Clone, Copy)]
pub enum Bar {
    NoSlowerThanBestPeer,
    AtMostNs(f64),
}

pub struct Contest {
    pub name: &'static str,
    pub bar: Bar,
    pub rows: Vec<Row>,
}

pub struct Measured {
    pub name: &'static str,
    pub bar: Bar,
    pub rows: Vec<Figures>,
}

pub struct Figures {
    pub name: &'static str,
    pub whose: Whose,
    pub fastest_ns: f64,
    pub median_ns: f64,
    /// Per call, of the round with the fewest.
    pub allocations: f64,
    pub instructions: Option<f64>,
}

/// One thread, as a call has it to itself.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"))
}

/// A row that awaits `$call` again and again. What it comes to must be `Ok`.
#[macro_export]
macro_rules! row {
    ($whose:ident, $name:literal, $call:expr) => {
        $crate::contest::Row {
            name: $name,
            whose: $crate::contest::Whose::$whose,
            run: Box::new(move |calls| {
                $crate::contest::runtime().block_on(async {
                    $crate::contest::spent!(calls, std::hint::black_box($call.await).expect("it succeeds"))
                })
            }),
        }
    };
}

/// Does `$work` `$calls` times, and says what that took.
macro_rules! spent {
    ($calls:expr, $work:expr) => {{
        let (began, before) = (std::time::Instant::now(), $crate::allocations::so_far());
        for _ in 0..$calls {
            $work;
        }
        let (time, allocations) = (began.elapsed(), $crate::allocations::so_far() - before);
        $crate::contest::Spent { time, allocations }
    }};
}
pub(crate) use spent;

impl Contest {
    pub fn measure(mut self, rounds: usize) -> Measured {
        let mut spent: Vec<Vec<Spent>> = vec![Vec::new(); self.rows.len()];
        for round in 0..rounds {
            for turn in 0..self.rows.len() {
                // Each round starts elsewhere, so that no row always follows the same one.
                let index = (turn + round) % self.rows.len();
                (self.rows[index].run)(CALLS / 10);
                spent[index].push((self.rows[index].run)(CALLS));
            }
        }
        let rows = self.rows.iter().zip(spent).map(|(row, spent)| Figures::new(row, &spent)).collect();
        Measured { name: self.name, bar: self.bar, rows }
    }
}

impl Figures {
    fn new(row: &Row, spent: &[Spent]) -> Self {
        let mut ns: Vec<f64> = spent.iter().map(|spent| spent.time.as_nanos() as f64 / f64::from(CALLS)).collect();
        ns.sort_by(f64::total_cmp);
        let allocations = spent.iter().map(|spent| spent.allocations).min().unwrap_or(0);
        Self {
            name: row.name,
            whose: row.whose,
            fastest_ns: ns[0],
            median_ns: ns[ns.len() / 2],
            allocations: allocations as f64 / f64::from(CALLS),
            instructions: None,
        }
    }
}
