//! Generated from commands/*.json by `cargo run -p resil-harness --bin generate`. Do not edit.

use resil_wire::pages;

use super::help::help;

/// Every page, to be registered with the server.
pub const PAGES: &[&str] = &[
    include_str!("../../../commands/cl.throttle.json"),
    include_str!("../../../commands/res.breaker.json"),
    include_str!("../../../commands/res.bulkhead.json"),
    include_str!("../../../commands/res.dlq.json"),
    include_str!("../../../commands/res.gcra.json"),
    include_str!("../../../commands/res.gcra.peek.json"),
    include_str!("../../../commands/res.guard.json"),
    include_str!("../../../commands/res.heartbeat.json"),
    include_str!("../../../commands/res.idemp.json"),
    include_str!("../../../commands/res.list.json"),
    include_str!("../../../commands/res.lock.json"),
    include_str!("../../../commands/res.mgcra.json"),
    include_str!("../../../commands/res.policy.json"),
    include_str!("../../../commands/res.sflight.json"),
    include_str!("../../../commands/res.top.json"),
    include_str!("../../../commands/res.window.json"),
    include_str!("../../../commands/res.window.peek.json"),
    include_str!("../../../commands/res._apply.json"),
    include_str!("../../../commands/res._clock.json"),
];

// HELP of every command that has subcommands.
help! {
    BREAKER_HELP, BREAKER_HELP_LINES;
    BULKHEAD_HELP, BULKHEAD_HELP_LINES;
    DLQ_HELP, DLQ_HELP_LINES;
    GUARD_HELP, GUARD_HELP_LINES;
    IDEMP_HELP, IDEMP_HELP_LINES;
    LOCK_HELP, LOCK_HELP_LINES;
    POLICY_HELP, POLICY_HELP_LINES;
    SFLIGHT_HELP, SFLIGHT_HELP_LINES;
}
