//! The commands: each parses, loads, steps, applies and replies; nothing else. Here is the list of them.

pub mod apply;
pub mod breaker;
pub mod bulkhead;
pub mod clock;
pub mod gcra;
pub mod holding;
pub mod idempotency;
pub mod lock;
pub mod mgcra;
pub mod single_flight;
pub mod throttle;
pub mod waiting;
pub mod window;

use redis_module::raw;
use resil_wire::argv::Argv;
use resil_wire::command::Page;
use resil_wire::pages;
use resil_wire::reply::Sink;

use crate::call::{Call, Command, Entry, Failure, entry};
use crate::config;
use crate::describe::{self, Registered};
use crate::edge::log;

/// The pages that are registered, in this order: each is a file of `commands/`.
const PAGES: [&str; 14] = [
    include_str!("../../../commands/res.gcra.json"),
    include_str!("../../../commands/res.gcra.peek.json"),
    include_str!("../../../commands/res.mgcra.json"),
    include_str!("../../../commands/res.window.json"),
    include_str!("../../../commands/res.window.peek.json"),
    include_str!("../../../commands/cl.throttle.json"),
    include_str!("../../../commands/res.breaker.json"),
    include_str!("../../../commands/res.lock.json"),
    include_str!("../../../commands/res.bulkhead.json"),
    include_str!("../../../commands/res.heartbeat.json"),
    include_str!("../../../commands/res.idemp.json"),
    include_str!("../../../commands/res.sflight.json"),
    include_str!("../../../commands/res._apply.json"),
    include_str!("../../../commands/res._clock.json"),
];

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
    help::{Breaker, Lock, Bulkhead, Idemp, Sflight},
];

/// HELP of every command that has subcommands.
mod help {
    use super::*;

    macro_rules! help {
        ($($name:ident: $page:ident, $lines:ident;)*) => {$(
            pub struct $name;

            impl Command for $name {
                const PAGE: &'static Page = &pages::$page;

                fn run(call: &Call<'_>) -> Result<(), Failure> {
                    Argv::new(&call.args(), Self::PAGE).finish()?;
                    let mut reply = call.reply();
                    reply.array(pages::$lines.len());
                    pages::$lines.iter().for_each(|line| reply.text(line.as_bytes()));
                    Ok(())
                }
            }
        )*};
    }

    help! {
        Breaker: BREAKER_HELP, BREAKER_HELP_LINES;
        Lock: LOCK_HELP, LOCK_HELP_LINES;
        Bulkhead: BULKHEAD_HELP, BULKHEAD_HELP_LINES;
        Idemp: IDEMP_HELP, IDEMP_HELP_LINES;
        Sflight: SFLIGHT_HELP, SFLIGHT_HELP_LINES;
    }
}

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
    let run = HANDLERS.iter().find(|(handled, _)| *handled == name).map(|(_, run)| *run);
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
