//! The commands: each parses, loads, steps, applies and replies; nothing else. Here is the list of them.

pub mod apply;
pub mod breaker;
pub mod bulkhead;
pub mod clock;
pub mod dead_letters;
pub mod gcra;
pub mod guard;
mod help;
pub mod holding;
pub mod idempotency;
pub mod lock;
pub mod mgcra;
pub mod overview;
#[rustfmt::skip] // as it is generated
mod pages;
pub mod policy;
pub mod reading;
pub mod single_flight;
pub mod throttle;
pub mod window;

use redis_module::raw;
use resil_core::lock::{BULKHEAD, LOCK};
use resil_wire::command::Page;

use self::pages::{HELP, PAGES};
use crate::call::{Call, Command, Entry, Failure, entry, parse};
use crate::config;
use crate::describe::{self, Registered};
use crate::edge::log;

/// What the server calls for each command and subcommand: the function that gets the parsed arguments, under its page. Behind
/// them those that read their arguments themselves.
macro_rules! handlers {
    ($($run:expr => $page:ident),*; $($command:ty),* $(,)?) => {
        &[$({
            struct Handler;

            impl Command for Handler {
                const PAGE: &'static Page = &resil_wire::pages::$page;

                fn run(call: &Call<'_>) -> Result<(), Failure> {
                    $run(call, parse::<Self, _>(&call.args())?)
                }
            }

            (resil_wire::pages::$page.name, entry::<Handler> as Entry)
        },)* $((<$command as Command>::PAGE.name, entry::<$command>)),*]
    };
}

const HANDLERS: &[(&str, Entry)] = handlers![
    gcra::gcra => GCRA,
    gcra::gcra_peek => GCRA_PEEK,
    mgcra::mgcra => MGCRA,
    window::window => WINDOW,
    window::window_peek => WINDOW_PEEK,
    throttle::throttle => THROTTLE,
    breaker::breaker_admit => BREAKER_ADMIT,
    breaker::breaker_report => BREAKER_REPORT,
    breaker::breaker_tally => BREAKER_TALLY,
    breaker::breaker_state => BREAKER_STATE,
    breaker::breaker_force => BREAKER_FORCE,
    breaker::breaker_reset => BREAKER_RESET,
    breaker::breaker_config => BREAKER_CONFIG,
    lock::lock_acquire => LOCK_ACQUIRE,
    lock::lock_renew => LOCK_RENEW,
    holding::release_holding::<LOCK> => LOCK_RELEASE,
    lock::lock_check => LOCK_CHECK,
    lock::lock_break => LOCK_BREAK,
    holding::show_holding::<LOCK> => LOCK_INFO,
    lock::heartbeat => HEARTBEAT,
    bulkhead::bulkhead_enter => BULKHEAD_ENTER,
    holding::renew_holding::<BULKHEAD> => BULKHEAD_RENEW,
    holding::release_holding::<BULKHEAD> => BULKHEAD_LEAVE,
    holding::show_holding::<BULKHEAD> => BULKHEAD_INFO,
    idempotency::idemp_begin => IDEMP_BEGIN,
    idempotency::idemp_commit => IDEMP_COMMIT,
    idempotency::idemp_abort => IDEMP_ABORT,
    idempotency::idemp_renew => IDEMP_RENEW,
    idempotency::idemp_once => IDEMP_ONCE,
    idempotency::idemp_get => IDEMP_GET,
    idempotency::idemp_info => IDEMP_INFO,
    single_flight::sflight_join => SFLIGHT_JOIN,
    single_flight::sflight_get => SFLIGHT_GET,
    single_flight::sflight_mget => SFLIGHT_MGET,
    single_flight::sflight_publish => SFLIGHT_PUBLISH,
    single_flight::sflight_abandon => SFLIGHT_ABANDON,
    single_flight::sflight_renew => SFLIGHT_RENEW,
    single_flight::sflight_invalidate => SFLIGHT_INVALIDATE,
    single_flight::sflight_set => SFLIGHT_SET,
    single_flight::sflight_clear => SFLIGHT_CLEAR,
    single_flight::sflight_info => SFLIGHT_INFO,
    dead_letters::dlq_fail => DLQ_FAIL,
    dead_letters::dlq_take => DLQ_TAKE,
    dead_letters::dlq_done => DLQ_DONE,
    dead_letters::dlq_renew => DLQ_RENEW,
    dead_letters::dlq_return => DLQ_RETURN,
    dead_letters::dlq_park => DLQ_PARK,
    dead_letters::dlq_get => DLQ_GET,
    dead_letters::dlq_list => DLQ_LIST,
    dead_letters::dlq_info => DLQ_INFO,
    dead_letters::dlq_diagnose => DLQ_DIAGNOSE,
    dead_letters::dlq_redrive => DLQ_REDRIVE,
    dead_letters::dlq_stop => DLQ_STOP,
    dead_letters::dlq_close => DLQ_CLOSE,
    dead_letters::dlq_hold => DLQ_HOLD,
    dead_letters::dlq_purge => DLQ_PURGE,
    dead_letters::dlq_seen => DLQ_SEEN,
    dead_letters::dlq_config => DLQ_CONFIG,
    policy::policy_set => POLICY_SET,
    policy::policy_get => POLICY_GET,
    policy::policy_history => POLICY_HISTORY,
    policy::policy_delete => POLICY_DELETE,
    policy::policy_check => POLICY_CHECK,
    guard::guard_enter => GUARD_ENTER,
    guard::guard_exit => GUARD_EXIT,
    guard::guard_state => GUARD_STATE,
    overview::list => LIST,
    overview::top => TOP;
    apply::Apply, clock::Clock,
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
