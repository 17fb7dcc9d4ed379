//! What GET, LIST, INFO and STOP show, as maps. Times are unix milliseconds; a text that is empty is nil.

use resil_core::dead_letters::{
    Alert, Attempt, AuditRow, CaseView, Class, Config, EntryView, GroupView, Jitter, LedgerView, Place, Rate,
    RedriveView, Retries,
};
use resil_core::{Instant, Span};

use super::unix_ms;
use crate::duration::Shown;
use crate::reply::Sink;

/// GET: the whole entry.
pub fn write_entry(view: &EntryView<'_>, sink: &mut (impl Sink + ?Sized)) {
    sink.map(25);
    entry_fields(view, sink);
    optional_text("payload", view.message.payload(), sink);
}

/// A row of LIST: the entry without its payload.
pub fn write_entry_row(view: &EntryView<'_>, sink: &mut (impl Sink + ?Sized)) {
    sink.map(24);
    entry_fields(view, sink);
}

fn entry_fields(view: &EntryView<'_>, sink: &mut (impl Sink + ?Sized)) {
    let message = view.message;
    text("id", message.id(), sink);
    text("state", view.place.text().as_bytes(), sink);
    number("attempt", view.attempt.into(), sink);
    number("lapses", view.lapses.into(), sink);
    number("deaths", view.deaths.into(), sink);
    optional_text("reason", view.reason.map(|reason| reason.text().as_bytes()), sink);
    text("type", message.kind(), sink);
    text("source", message.source(), sink);
    text("aggregate", message.aggregate(), sink);
    optional_number("schema", message.schema().map(i64::from), sink);
    text("headers", message.headers(), sink);
    optional_text("ref", message.reference(), sink);
    text("class", view.class.text().as_bytes(), sink);
    text("group", view.group, sink);
    text("first_error", view.first_error, sink);
    text("last_error", view.last_error, sink);
    instant("first_at", Some(view.first_at), sink);
    instant("last_at", Some(view.last_at), sink);
    instant("died_at", view.died_at, sink);
    instant("due_at", view.due_at, sink);
    number("held", view.held.into(), sink);
    sink.text(b"attempts");
    sink.array(view.attempts.len());
    for Attempt { at, class, delay } in &view.attempts {
        sink.array(3);
        sink.integer(unix_ms(*at));
        sink.text(class.text().as_bytes());
        sink.integer(delay.ceil_ms());
    }
    numbers("cases", view.cases, sink);
    let cut: Vec<&str> = message.cut().names().chain(view.error_is_cut.then_some("error")).collect();
    sink.text(b"cut");
    sink.array(cut.len());
    cut.iter().for_each(|name| sink.text(name.as_bytes()));
}

/// INFO: how much there is. A key that does not exist has no entries.
pub fn write_ledger(view: &LedgerView, exists: bool, sink: &mut (impl Sink + ?Sized)) {
    sink.map(Place::ALL.len() + 8);
    for (place, count) in Place::ALL.into_iter().zip(view.counts) {
        number(place.text(), count as i64, sink);
    }
    number("held", view.held as i64, sink);
    number("entries", view.entries as i64, sink);
    number("bytes", view.bytes as i64, sink);
    number("groups", view.groups as i64, sink);
    number("cases_open", view.cases_open as i64, sink);
    number("alerts_unseen", view.alerts_unseen as i64, sink);
    number("paused_until", view.paused_until.map_or(-1, unix_ms), sink);
    number("exists", exists.into(), sink);
}

/// INFO GROUPS: a row.
pub fn write_group(view: &GroupView<'_>, sink: &mut (impl Sink + ?Sized)) {
    sink.map(9);
    text("group", view.name, sink);
    text("type", view.kind, sink);
    number("dead", view.dead as i64, sink);
    number("entries", view.entries as i64, sink);
    number("deaths", view.deaths.cast_signed(), sink);
    instant("first_at", Some(view.first_at), sink);
    instant("last_at", Some(view.last_at), sink);
    text("sample", view.sample, sink);
    numbers("cases", view.cases, sink);
}

/// INFO CASE, and a row of INFO CASES.
pub fn write_case(view: &CaseView<'_>, sink: &mut (impl Sink + ?Sized)) {
    sink.map(13);
    number("case", view.number.into(), sink);
    text("category", view.category.text().as_bytes(), sink);
    text("cause", view.cause, sink);
    text("fix", view.fix, sink);
    text("decision", view.decision, sink);
    sink.text(b"groups");
    sink.array(view.groups.len());
    view.groups.iter().for_each(|group| sink.text(group));
    text("user", view.user, sink);
    text("actor", view.actor, sink);
    instant("opened_at", Some(view.opened_at), sink);
    instant("closed_at", view.closed_at, sink);
    number("discarded", view.is_discarded.into(), sink);
    instant("auto_until", view.auto_until, sink);
    sink.text(b"redrive");
    match &view.redrive {
        Some(redrive) => write_redrive(redrive, sink),
        None => sink.null(),
    }
}

/// STOP, and the redrive of a case.
pub fn write_redrive(view: &RedriveView, sink: &mut (impl Sink + ?Sized)) {
    sink.map(11);
    text("phase", view.phase.text().as_bytes(), sink);
    instant("started_at", Some(view.started_at), sink);
    number("rate", view.rate.count.into(), sink);
    number("period_ms", view.rate.period.ceil_ms(), sink);
    number("first", view.first.into(), sink);
    number("oneshot", view.oneshot.into(), sink);
    number("auto", view.is_auto.into(), sink);
    number("given", view.given.into(), sink);
    number("resolved", view.resolved.into(), sink);
    number("died", view.died.into(), sink);
    number("active", view.active.into(), sink);
}

/// INFO ALERTS: a row.
pub fn write_alert(alert: &Alert, sink: &mut (impl Sink + ?Sized)) {
    sink.map(7);
    number("alert", alert.id.cast_signed(), sink);
    text("kind", alert.kind.text().as_bytes(), sink);
    text("severity", alert.kind.severity().as_bytes(), sink);
    text("subject", &alert.subject, sink);
    number("count", alert.count.cast_signed(), sink);
    instant("at", Some(alert.at), sink);
    number("seen", alert.is_seen.into(), sink);
}

/// INFO AUDIT: a row.
pub fn write_audit(row: &AuditRow, sink: &mut (impl Sink + ?Sized)) {
    sink.map(6);
    number("id", row.id.cast_signed(), sink);
    instant("at", Some(row.at), sink);
    text("user", &row.user, sink);
    text("actor", &row.actor, sink);
    text("correlation", &row.correlation, sink);
    text("action", &row.action, sink);
}

/// INFO CONFIG: the options by their names, as CONFIG takes them.
pub fn write_config(config: &Config, sink: &mut (impl Sink + ?Sized)) {
    sink.map(3 * Class::ALL.len() + 5);
    for class in Class::ALL {
        let Retries { most, base, cap } = *config.of(class);
        number(&format!("{}_retries", class.text()), most.into(), sink);
        span(&format!("{}_base", class.text()), base, sink);
        span(&format!("{}_cap", class.text()), cap, sink);
    }
    match config.jitter {
        Jitter::Full => text("jitter", b"full", sink),
        Jitter::None => text("jitter", b"none", sink),
        Jitter::Plus(percent) => text("jitter", format!("plus {percent}").as_bytes(), sink),
    }
    number("crashes", config.crashes.into(), sink);
    let Rate { count, period } = config.rate_max;
    text("ratemax", format!("{count} {}", Shown(period)).as_bytes(), sink);
    span("aftermax", config.after_max, sink);
    number("paused_until", config.paused_until.map_or(-1, unix_ms), sink);
}

fn number(name: &str, number: i64, sink: &mut (impl Sink + ?Sized)) {
    sink.text(name.as_bytes());
    sink.integer(number);
}

fn optional_number(name: &str, number: Option<i64>, sink: &mut (impl Sink + ?Sized)) {
    sink.text(name.as_bytes());
    match number {
        Some(number) => sink.integer(number),
        None => sink.null(),
    }
}

fn numbers(name: &str, numbers: &[u32], sink: &mut (impl Sink + ?Sized)) {
    sink.text(name.as_bytes());
    sink.array(numbers.len());
    numbers.iter().for_each(|number| sink.integer((*number).into()));
}

fn text(name: &str, text: &[u8], sink: &mut (impl Sink + ?Sized)) {
    optional_text(name, (!text.is_empty()).then_some(text), sink);
}

fn optional_text(name: &str, text: Option<&[u8]>, sink: &mut (impl Sink + ?Sized)) {
    sink.text(name.as_bytes());
    sink.text_or_null(text);
}

fn instant(name: &str, at: Option<Instant>, sink: &mut (impl Sink + ?Sized)) {
    optional_number(name, at.map(unix_ms), sink);
}

fn span(name: &str, span: Span, sink: &mut (impl Sink + ?Sized)) {
    text(name, Shown(span).to_string().as_bytes(), sink);
}
