//! The reply of `RES.BREAKER STATE`: a map of everything a breaker knows.

use resil_core::circuit_breaker::{Config, Phase, View, WindowKind};
use resil_core::{Instant, Span};

use crate::duration::Shown;
use crate::reply::Sink;

/// Writes the map. A key that does not `exist` has the view of a default breaker: one that admits everything.
pub fn write_state(view: &View, exists: bool, now: Instant, sink: &mut (impl Sink + ?Sized)) {
    let breaker = &view.breaker;
    let totals = breaker.totals(now);
    let percent = |part: u32| part as i64 * 100 / (totals.calls as i64).max(1);
    sink.map(22);
    field_text("state", breaker.name().text().as_bytes(), sink);
    field("admits", view.admits as i64, sink);
    field("retry_after_ms", view.retry_after.ms(), sink);
    field("generation", breaker.generation() as i64, sink);
    field("calls", totals.calls as i64, sink);
    field("failures", totals.failures as i64, sink);
    field("slow", totals.slow as i64, sink);
    field("failure_rate_pct", percent(totals.failures), sink);
    field("slow_rate_pct", percent(totals.slow), sink);
    field("failures_in_a_row", breaker.failures_in_a_row(now) as i64, sink);
    field("trips", breaker.trips() as i64, sink);
    field("probes_out", breaker.probes_out(now) as i64, sink);
    let (successes, opened_ms) = match breaker.phase() {
        Phase::HalfOpen { successes, .. } => (*successes as i64, 0),
        Phase::Open { opened_us, .. } => (0, opened_us / 1_000),
        _ => (0, 0),
    };
    field("successes", successes, sink);
    field("opened_at_ms", opened_ms, sink);
    let (actor, reason, since_ms, until_ms) = match breaker.phase() {
        Phase::Forced(forced) => (
            forced.actor.as_slice(),
            forced.reason.as_slice(),
            forced.since_us / 1_000,
            forced.until_us.map_or(-1, |until_us| until_us / 1_000),
        ),
        _ => (&[][..], &[][..], 0, 0),
    };
    field_text("forced_by", actor, sink);
    field_text("forced_reason", reason, sink);
    field("forced_at_ms", since_ms, sink);
    field("forced_until_ms", until_ms, sink);
    field("version", breaker.version() as i64, sink);
    sink.text(b"config");
    write_config(breaker.config(), sink);
    field("exists", exists as i64, sink);
    let ends_in = match breaker.phase() {
        Phase::Forced(forced) if forced.until_us.is_some() => forced.force.ends_in().text(),
        _ => "",
    };
    field_text("forced_ends_in", ends_in.as_bytes(), sink);
}

/// The options by their names, as CONFIG takes them.
fn write_config(config: &Config, sink: &mut (impl Sink + ?Sized)) {
    sink.map(15);
    let (kind, size) = match config.window {
        WindowKind::Count(calls) => ("count", calls.to_string()),
        WindowKind::Time(length) => ("time", Shown(length).to_string()),
    };
    field_text("window", format!("{kind} {size}").as_bytes(), sink);
    field("rate", config.rate_pct as i64, sink);
    span("slow", config.slow, sink);
    field("slowrate", config.slow_rate_pct as i64, sink);
    field("consecutive", config.consecutive as i64, sink);
    field("mincalls", config.min_calls as i64, sink);
    span("open", config.open, sink);
    let (whole, milli) = (config.factor_milli / 1_000, config.factor_milli % 1_000);
    let factor = format!("{whole}.{milli:03}");
    field_text("factor", factor.trim_end_matches('0').trim_end_matches('.').as_bytes(), sink);
    span("max", config.open_max, sink);
    field("probes", config.probes as i64, sink);
    field("successes", config.successes as i64, sink);
    span("lease", config.lease, sink);
    field("quorum", config.quorum as i64, sink);
    span("ramp", config.ramp, sink);
    span("idle", config.idle, sink);
}

fn field(name: &str, number: i64, sink: &mut (impl Sink + ?Sized)) {
    sink.text(name.as_bytes());
    sink.integer(number);
}

fn field_text(name: &str, text: &[u8], sink: &mut (impl Sink + ?Sized)) {
    sink.text(name.as_bytes());
    sink.text(text);
}

fn span(name: &str, span: Span, sink: &mut (impl Sink + ?Sized)) {
    field_text(name, Shown(span).to_string().as_bytes(), sink);
}
