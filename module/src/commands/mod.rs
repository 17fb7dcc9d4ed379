//! The commands: each parses, loads, steps, applies and replies; nothing else. Here is the list of them.

pub mod apply;
pub mod breaker;
pub mod bulkhead;
pub mod clock;
pub mod gcra;
mod help;
pub mod holding;
pub mod idempotency;
pub mod lock;
pub mod mgcra;
#[rustfmt::skip] // as it is generated
mod pages;
pub mod single_flight;
pub mod throttle;
pub mod waiting;
pub mod window;

use redis_module::raw;

use self::pages::{HELP, PAGES};
use crate::call::{Command, Entry, entry};
use crate::config;
use crate::describe::{self, Registered};
use crate::edge::log;

/// What the server calls for each command and subcommand; the page of each says its name.
macro_rules! handlers {
    ($($file:ident::{$($command:ident),* $(,)?}),* $(,)?) => {
        &[$($((<$file::$command as Command>::PAGE.name, entry::<$file::$command>)),*),*]
    };
}

const HANDLERS: &[(&str, Entry)] = handlers![
    gcra::{TakeGcra, PeekGcra},
    mgcra::{TakeAll},
    window::{TakeWindow, PeekWindow},
    throttle::{Throttle},
    breaker::{Admit, Report, Tally, State, Force, Reset, Config},
    lock::{Acquire, RenewLock, Release, Check, Break, LockInfo, Heartbeat},
    bulkhead::{Enter, RenewPermit, Leave, BulkheadInfo},
    idempotency::{Begin, Commit, Abort, RenewRun, Once, GetResult, RecordInfo},
    single_flight::{Join, GetValue, Publish, Abandon, RenewLead, Invalidate, FlightInfo},
    apply::{Apply},
    clock::{Clock},
];

/// Registers every command, as its page says.
pub fn register(ctx: *mut raw::RedisModuleCtx) -> Result<(), ()> {
    for page in PAGES {
        let page = describe::parse(page).map_err(|problem| log(ctx, c"warning", &problem))?;
        register_page(ctx, &page)?;
    }
    Ok(())
}

fn register_page(ctx: *mut raw::RedisModuleCtx, page: &describe::Page) -> Result<(), ()> {
    match page.name.as_str() {
        "CL.THROTTLE" if !config::cell_compat() => return Ok(()),
        "RES._CLOCK" if !config::test_clock() => return Ok(()),
        "RES._CLOCK" => log(ctx, c"warning", "test-clock is on: RES._CLOCK can stop the clock of this server's limits"),
        _ => {}
    }
    let name = page.name.replace('|', " ");
    let run = HANDLERS.iter().chain(HELP).find(|(handled, _)| *handled == name).map(|(_, run)| *run);
    if run.is_none() && page.subcommands.is_empty() {
        log(ctx, c"warning", &format!("{name} has a page and no handler"));
        return Err(());
    }
    match describe::register(ctx, page, run) {
        Ok(Registered::Yes) => page.subcommands.iter().try_for_each(|page| register_page(ctx, page)),
        // The name is redis-cell's: where that module is loaded, it keeps it.
        Ok(Registered::NameTaken) if name == "CL.THROTTLE" => {
            log(ctx, c"notice", "CL.THROTTLE belongs to another module and stays there");
            Ok(())
        }
        Ok(Registered::NameTaken) => {
            log(ctx, c"warning", "another module already has one of our commands; is resil loaded twice?");
            Err(())
        }
        Err(problem) => {
            log(ctx, c"warning", &problem);
            Err(())
        }
    }
}
