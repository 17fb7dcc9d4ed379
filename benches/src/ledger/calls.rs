//! FAIL, TAKE and DONE beside XADD, XREADGROUP, XACK and XDEL of the same bytes: CPU time of the server's main thread per message.
//!
//! Both servers have their turn in every slice, now one first and now the other. A turn's ratio is the median of its slices, and the
//! median of the turns counts.

use std::thread::sleep;
use std::time::Duration;

use redis::{Connection, Value};
use resil_harness::{Options, Server, ok};

use super::{bar, connection, fail, id, list_of, packed, send, text_of, with_large_ledgers, xadd};
use crate::bars::{Bar, Verdict};
use crate::figures::median;
use crate::stage::{SETTLE, cpu_us};

const TURNS: usize = 7;
const TURNS_QUICK: usize = 2;
const MESSAGES: usize = 200_000;
const MESSAGES_QUICK: usize = 20_000;
const SLICES: usize = 10;
const PIPELINE: usize = 50;
const BATCH: usize = 100;
/// The first retry waits at most 500 ms.
const DUE: Duration = Duration::from_millis(700);

/// A promise, and what it is at least.
const ROWS: [(&str, &str, f64); 3] = [
    ("RES.DLQ FAIL, new", "XADD", 0.5),
    ("RES.DLQ TAKE, DONE", "XREADGROUP, XACK, XDEL", 0.6),
    ("RES.DLQ TAKE COUNT 100, DONE of 100", "the same of 100", 1.0),
];

#[derive(Clone, Copy)]
struct Cost {
    ours_us: f64,
    peer_us: f64,
    ratio: f64,
}

pub struct Calls {
    rows: [Cost; 3],
    messages: usize,
}

struct Side {
    server: Server,
    connection: Connection,
}

impl Side {
    fn start(options: Options) -> Self {
        let server = Server::start(options.measured());
        let connection = connection(&server);
        Self { server, connection }
    }

    /// CPU time per message.
    fn cost(&mut self, messages: usize, work: impl FnOnce(&mut Connection)) -> f64 {
        let before_us = cpu_us(&self.server);
        work(&mut self.connection);
        sleep(SETTLE);
        (cpu_us(&self.server) - before_us) / messages as f64
    }
}

pub fn measure(quick: bool) -> Calls {
    let (turns, messages) = if quick { (TURNS_QUICK, MESSAGES_QUICK) } else { (TURNS, MESSAGES) };
    let (mut ours, mut plain) = (Side::start(with_large_ledgers()), Side::start(Options::default().without_module()));
    let mut runs = [(); 3].map(|()| Vec::new());
    for turn in 0..turns {
        for (row, cost) in one_turn(&mut ours, &mut plain, messages).into_iter().enumerate() {
            let (ours, peer, _) = ROWS[row];
            let Cost { ours_us, peer_us, ratio } = cost;
            eprintln!("ledger: {}/{turns}  {ours} {ours_us:.2} us, {peer} {peer_us:.2} us: {ratio:.2}x", turn + 1);
            runs[row].push(cost);
        }
    }
    Calls { rows: runs.map(|costs| Cost::median(&costs)), messages }
}

fn one_turn(ours: &mut Side, plain: &mut Side, messages: usize) -> [Cost; 3] {
    for side in [&mut *ours, &mut *plain] {
        ok(&mut side.connection, &["FLUSHALL", "SYNC"]);
    }
    let slice = messages / SLICES;
    let failed = alternating(ours, plain, SLICES, slice, |first| {
        let new = first..first + slice;
        let (fails, adds): (Vec<_>, Vec<_>) = new.map(|number| (fail(number, None), xadd(number))).unzip();
        (
            move |connection: &mut Connection| all_say(&send(connection, fails.into_iter(), PIPELINE), "RETRY"),
            move |connection: &mut Connection| drop(send(connection, adds.into_iter(), PIPELINE)),
        )
    });
    ok(&mut plain.connection, &["XGROUP", "CREATE", "stream", "group", "0"]);
    sleep(DUE);
    // Half of them one by one, half of them a hundred at a time.
    let slice = slice / 2 / BATCH * BATCH;
    let one = alternating(ours, plain, SLICES, slice, |first| {
        (
            move |connection: &mut Connection| take(connection, first..first + slice, 1),
            move |connection: &mut Connection| read(connection, slice, 1),
        )
    });
    let many = alternating(ours, plain, SLICES, slice, |first| {
        let first = messages + first;
        (
            move |connection: &mut Connection| take(connection, first..first + slice, BATCH),
            move |connection: &mut Connection| read(connection, slice, BATCH),
        )
    });
    [failed, one, many]
}

/// Runs `slices` of both; `works` makes what each does in the slice that begins with a number.
fn alternating<O: FnOnce(&mut Connection), P: FnOnce(&mut Connection)>(
    ours: &mut Side,
    plain: &mut Side,
    slices: usize,
    slice: usize,
    works: impl Fn(usize) -> (O, P),
) -> Cost {
    let costs: Vec<Cost> = (0..slices)
        .map(|index| {
            let (our_work, their_work) = works(index * slice);
            let (ours_us, peer_us) = if index % 2 == 0 {
                let ours_us = ours.cost(slice, our_work);
                (ours_us, plain.cost(slice, their_work))
            } else {
                let peer_us = plain.cost(slice, their_work);
                (ours.cost(slice, our_work), peer_us)
            };
            Cost { ours_us, peer_us, ratio: peer_us / ours_us }
        })
        .collect();
    Cost::median(&costs)
}

fn all_say(replies: &[Value], verdict: &str) {
    for reply in replies {
        assert_eq!(text_of(&list_of(reply)[0]), verdict);
    }
}

/// Takes as many messages as `tokens` has numbers, `count` a call, and is done with them.
fn take(connection: &mut Connection, tokens: std::ops::Range<usize>, count: usize) {
    let (calls, at_once) = (tokens.len() / count, if count == 1 { PIPELINE } else { 1 });
    let numbers: Vec<usize> = tokens.take(calls).collect();
    let mut taken = 0;
    for some in numbers.chunks(at_once) {
        let asked = some
            .iter()
            .map(|number| packed(["RES.DLQ", "TAKE", "ledger", &id(*number), "10m", "COUNT", &count.to_string()]));
        let done = send(connection, asked, at_once).into_iter().map(|reply| {
            let entries = list_of(&list_of(&reply)[3]);
            taken += entries.len();
            let pairs: Vec<String> = entries.iter().flat_map(|entry| list_of(entry)[..2].iter().map(text_of)).collect();
            packed(["RES.DLQ", "DONE", "ledger"].into_iter().chain(pairs.iter().map(String::as_str)))
        });
        let done: Vec<_> = done.collect();
        let replies = send(connection, done.into_iter(), at_once);
        match count {
            1 => all_say(&replies, "DONE"),
            _ => replies.iter().for_each(|reply| all_say(list_of(reply), "DONE")),
        }
    }
    assert_eq!(taken, calls * count, "everything is due");
}

/// Reads as many messages of the stream, `count` a call, acknowledges and deletes them.
fn read(connection: &mut Connection, messages: usize, count: usize) {
    let at_once = if count == 1 { PIPELINE } else { 1 };
    for _ in 0..messages / count / at_once {
        let count_text = count.to_string();
        let words = ["XREADGROUP", "GROUP", "group", "me", "COUNT", &count_text, "STREAMS", "stream", ">"];
        let replies = send(connection, (0..at_once).map(|_| packed(words)), at_once);
        let ends = replies.iter().flat_map(|reply| {
            let entries = list_of(&list_of(&list_of(reply)[0])[1]);
            let ids: Vec<String> = entries.iter().map(|entry| text_of(&list_of(entry)[0])).collect();
            let ids = || ids.iter().map(String::as_str);
            [
                packed(["XACK", "stream", "group"].into_iter().chain(ids())),
                packed(["XDEL", "stream"].into_iter().chain(ids())),
            ]
        });
        let ends: Vec<_> = ends.collect();
        for ended in send(connection, ends.into_iter(), 2 * at_once) {
            assert_eq!(text_of(&ended), count.to_string());
        }
    }
}

impl Cost {
    fn median(costs: &[Self]) -> Self {
        let of = |number: fn(&Self) -> f64| median(costs.iter().map(number));
        Self { ours_us: of(|cost| cost.ours_us), peer_us: of(|cost| cost.peer_us), ratio: of(|cost| cost.ratio) }
    }
}

impl Calls {
    pub fn print(&self) {
        println!("\n### Dead letters: {} messages of 500 bytes\n", self.messages);
        println!("| | CPU µs | beside | CPU µs | CPU, x |\n| --- | ---: | --- | ---: | ---: |");
        for ((ours, peer, _), cost) in ROWS.iter().zip(&self.rows) {
            println!("| {ours} | {:.2} | {peer} | {:.2} | {:.2} |", cost.ours_us, cost.peer_us, cost.ratio);
        }
    }

    pub fn bars(&self) -> Vec<Bar> {
        let promises = [
            "RES.DLQ FAIL, new, at least 0.5x `XADD` of the same bytes",
            "RES.DLQ TAKE and DONE, one by one, at least 0.6x `XREADGROUP`, `XACK` and `XDEL`",
            "RES.DLQ TAKE and DONE, a hundred at once, at least 1x the same of a stream",
        ];
        let rows = self.rows.iter().zip(ROWS).zip(promises);
        rows.map(|((cost, (_, _, least)), promise)| {
            bar(promise, format!("{:.2}x CPU", cost.ratio), Verdict::at_least(cost.ratio, least, f64::INFINITY))
        })
        .collect()
    }
}
