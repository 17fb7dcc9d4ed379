//! Instructions per call, counted by valgrind: steady where clocks are not.
//!
//! This program runs itself twice for every row, with fewer and with more calls; the difference is what the calls took.

use std::env;
use std::process::Command;

use crate::contest::{Contest, Measured};

/// So many that what making the rows costs, which differs from run to run, does not show.
const FEW: u32 = 2_000;
const MORE: u32 = 402_000;

/// What a copy of this program is to run under valgrind.
pub struct Wanted {
    row: String,
    calls: u32,
}

fn row_id(contest: &str, row: &str) -> String {
    format!("{contest}: {row}")
}

impl Wanted {
    pub fn from_env() -> Option<Self> {
        let row = env::var("SDK_ROW").ok()?;
        Some(Self { row, calls: env::var("SDK_CALLS").ok()?.parse().ok()? })
    }

    pub fn run(&self, contests: Vec<Contest>) {
        let rows = contests.into_iter().flat_map(|contest| {
            let id = move |row: &crate::contest::Row| row_id(contest.name, row.name);
            contest.rows.into_iter().map(move |row| (id(&row), row))
        });
        let mut row = rows.filter(|(id, _)| *id == self.row).map(|(_, row)| row).next().expect("a row of that name");
        (row.run)(self.calls);
    }
}

/// Adds the instructions to every row; leaves them out where valgrind is not there.
pub fn count(measured: &mut Measured) {
    for row in &mut measured.rows {
        let id = row_id(measured.name, row.name);
        row.instructions =
            executed(&id, FEW).zip(executed(&id, MORE)).map(|(few, more)| (more - few) / f64::from(MORE - FEW));
    }
}

fn executed(row: &str, calls: u32) -> Option<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(env::current_exe().ok()?)
        .env("SDK_ROW", row)
        .env("SDK_CALLS", calls.to_string())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|line| line.contains("I refs") || line.contains("I   refs"))?;
    line.rsplit(' ').next()?.replace(',', "").parse().ok()
}
