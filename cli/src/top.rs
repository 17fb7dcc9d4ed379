//! `resil top`: what is open, who waits, who is refused most, which ledgers have dead letters. Live on a terminal, where q quits; one screen
//! with `--once`, with `--json`, or where there is no terminal.
//!
//! While the server is away it says so and keeps the last picture; it goes on when the server is back.

mod screen;
mod terminal;

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use resil::operator::KeyKind;
use resil::{Client, Error};
use serde_json::json;

use self::screen::draw;
use self::terminal::Terminal;
use crate::connect::ConnectArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::overview::{OverviewRow, away, denied, list_all};
use crate::spans;

/// Rows of each kind that are looked at.
const ROWS_MAX: usize = 10_000;

#[derive(Args)]
pub struct TopArgs {
    /// Prints one screen and ends
    #[arg(long)]
    once: bool,
    /// How often it looks
    #[arg(long, value_name = "DURATION", value_parser = spans::read, default_value = "1s")]
    interval: Duration,
    /// Rows of each part
    #[arg(long, default_value_t = 10)]
    rows: usize,
}

/// One look at the server.
#[derive(Default)]
pub struct Picture {
    /// Worst first.
    pub breakers: Vec<OverviewRow>,
    pub locks: Vec<OverviewRow>,
    pub ledgers: Vec<OverviewRow>,
    pub denied: Vec<OverviewRow>,
    /// Nodes of a cluster that did not reply, and why.
    pub lost: Vec<(String, String)>,
}

impl Picture {
    async fn take(client: &Client, rows: usize) -> Result<Self, Error> {
        let operator = &client.operator().without_lost_nodes();
        let mut breakers = list_all(operator, KeyKind::Breaker, ROWS_MAX).await?;
        let mut locks = list_all(operator, KeyKind::Lock, ROWS_MAX).await?;
        let mut ledgers = list_all(operator, KeyKind::DeadLetters, ROWS_MAX).await?;
        breakers.sort_by_key(|row| (badness(&row.text("state")), std::cmp::Reverse(row.number("failures"))));
        locks.sort_by_key(|row| std::cmp::Reverse((row.number("waiters"), row.number("held_ms"))));
        ledgers.sort_by_key(|row| std::cmp::Reverse((row.number("dead"), row.number("waiting"))));
        let denied = denied(operator, rows).await?;
        Ok(Self { breakers, locks, ledgers, denied, lost: operator.lost_nodes() })
    }

    fn json(&self, rows: usize) -> serde_json::Value {
        let part = |all: &[OverviewRow]| all.iter().take(rows).map(OverviewRow::json).collect::<Vec<_>>();
        let kinds = [("breakers", &self.breakers), ("locks", &self.locks), ("ledgers", &self.ledgers)];
        let at_least: Vec<&str> = kinds.iter().filter(|(_, rows)| is_cut(rows)).map(|(kind, _)| *kind).collect();
        json!({
            // Of these kinds there are more: the total is what was looked at.
            "atLeast": at_least,
            "breakers": part(&self.breakers), "breakersTotal": self.breakers.len(),
            "locks": part(&self.locks), "locksTotal": self.locks.len(),
            "ledgers": part(&self.ledgers), "ledgersTotal": self.ledgers.len(),
            "denied": part(&self.denied),
            "nodesAway": self.lost.iter().map(|(address, why)| json!({ "node": address, "reason": why })).collect::<Vec<_>>(),
        })
    }

    /// What is not in the picture.
    fn trouble(&self) -> Option<String> {
        (!self.lost.is_empty()).then(|| format!("{}: what they have is not shown", away(&self.lost)))
    }
}

/// Whether there may be more than were looked at.
pub fn is_cut(rows: &[OverviewRow]) -> bool {
    rows.len() >= ROWS_MAX
}

/// What is worst comes first.
fn badness(state: &str) -> u8 {
    match state {
        "open" => 0,
        "forced-open" => 1,
        "half-open" => 2,
        "ramping" => 3,
        "closed" => 9,
        _ => 4,
    }
}

pub async fn run(connect: &ConnectArgs, output: &Output, args: &TopArgs) -> Result<(), Failure> {
    let is_live = !args.once && !output.is_json && std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if !is_live {
        let picture = Picture::take(&connect.client().await?, args.rows).await?;
        match output.is_json {
            true => output.json(&picture.json(args.rows))?,
            false => output.lines(draw(&picture, None, output.has_colors, args.rows, None))?,
        }
        return picture.trouble().map_or(Ok(()), |trouble| Err(Failure::Unreachable(trouble)));
    }
    let client = connect.client().await?;
    let mut terminal = Terminal::open()?;
    let mut picture = Picture::default();
    loop {
        let trouble;
        let looking = tokio::time::timeout(connect.timeout(), Picture::take(&client, args.rows));
        // It can be quit while a server is slow, too.
        let seen = tokio::select! {
            seen = looking => seen,
            () = terminal.quits() => return Ok(()),
        };
        match seen {
            Ok(Ok(seen)) => {
                trouble = seen.trouble();
                picture = seen;
            }
            Ok(Err(error)) => trouble = Some(error.to_string()),
            Err(_) => trouble = Some("the server does not reply in time".to_owned()),
        }
        let (width, height) = terminal.size();
        let lines = draw(&picture, trouble.as_deref(), output.has_colors, args.rows, Some((width, height)));
        terminal.show(&lines)?;
        if tokio::time::timeout(args.interval.max(Duration::from_millis(100)), terminal.quits()).await.is_ok() {
            return Ok(());
        }
    }
}
