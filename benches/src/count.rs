//! `compare` with `COUNT`: instructions of the server for each call of a row, counted by callgrind. They are the same on a busy
//! machine, so one percent between two modules shows. What the kernel does is not counted.
//!
//! `COUNT` is the file of another module, an earlier one, or `no-op`: the rows that both have are called on both, with the same
//! requests. Each row begins on a server of its own, several times: where the tables of a server put the names of its commands is
//! drawn when it starts, and moves a call by up to 2 %, so the fewest count. What was counted last is left in `target/callgrind`,
//! for callgrind_annotate.

use std::fs;
use std::path::{Path, PathBuf};

use resil_harness::Options;

use crate::catalogue::{self, Given};
use crate::flights::rows::Scripts;
use crate::limit;
use crate::load::{Load, Place};
use crate::stage::{Size, Stage};

/// As long as a real one, for a module that reads none.
const PERMIT: &str = "0.6605bfb4e4c72.8a95f07b55050a7";

const STARTS: usize = 3;

const SIZE: Size = Size { keys: 20_000, calls: 10_000, pipeline: 50 };

/// Prints the table.
pub fn print(beside: &str, is_wanted: impl Fn(&str) -> bool) {
    let no_op = (beside == "no-op").then(|| limit::module().unwrap_or_else(|why| panic!("no no-op: {why}")));
    let other = no_op.clone().unwrap_or_else(|| PathBuf::from(beside));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/callgrind");
    fs::create_dir_all(&folder).expect("a folder for what was counted");
    let kept = |name: &str, whose: &str| folder.join(format!("{}.{whose}", name.replace([' ', ':', ','], "-")));
    println!("| row | {beside} | this module | x | more |\n| --- | ---: | ---: | ---: | ---: |");
    for name in names(no_op.is_some()).into_iter().filter(|name| is_wanted(name)) {
        let fewest = |options: Options, permit: Option<&str>, keep: &Path| {
            (0..STARTS).map(|_| instructions(&options, permit, name, keep)).fold(f64::INFINITY, f64::min)
        };
        let this = fewest(Options::default(), None, &kept(name, "this"));
        let permit = no_op.is_some().then_some(PERMIT);
        let that = fewest(Options::default().module_path(&other), permit, &kept(name, "other"));
        println!("| {name} | {that:.0} | {this:.0} | {:.2} | {:+.1} % |", that / this, (this / that - 1.0) * 100.0);
    }
}

/// The rows on a server with our module; those that have a no-op.
fn names(with_no_op: bool) -> Vec<&'static str> {
    let ours = [Place::Alone, Place::Replicated, Place::AppendOnly];
    let loads = loads(String::new());
    let ours = loads.iter().filter(|load| ours.contains(&load.place)).map(|load| load.name);
    ours.filter(|name| !with_no_op || limit::ROWS.iter().any(|(row, _)| row == name)).collect()
}

fn loads(permit: String) -> Vec<Load> {
    let sha = String::new;
    let flights = Scripts { begin: sha(), commit: sha(), join: sha(), publish: sha() };
    let (lua_sha, lua_admit_sha, lua_report_sha, lua_unlock_sha) = (sha(), sha(), sha(), sha());
    catalogue::loads(&Given { lua_sha, lua_admit_sha, lua_report_sha, lua_unlock_sha, flights, permit })
}

/// Instructions of a call. A server without breakers gets the permit to take.
fn instructions(options: &Options, permit: Option<&str>, name: &str, keep: &Path) -> f64 {
    let place = loads(String::new()).iter().find(|load| load.name == name).map(|load| load.place);
    let counted = options.clone().counted().config("hz", "1");
    let mut stage = match place {
        Some(Place::Replicated) => Stage::beside_replica(counted, options.clone()),
        Some(Place::AppendOnly) => Stage::alone(counted.config("appendonly", "yes").config("appendfsync", "everysec")),
        _ => Stage::alone(counted),
    };
    let permit = permit.map_or_else(|| stage.permit(), str::to_owned);
    let load = loads(permit).into_iter().find(|load| load.name == name).expect("a row of that name");
    stage.instructions(&load, SIZE, keep)
}
