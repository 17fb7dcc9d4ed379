//! What the HELP line of a field of `INFO resil` says.

/// The part of a field before its first underscore, and the commands that it counts.
const COMMANDS: [(&str, &str); 11] = [
    ("gcra", "RES.GCRA"),
    ("mgcra", "RES.MGCRA"),
    ("window", "RES.WINDOW"),
    ("throttle", "CL.THROTTLE"),
    ("breaker", "RES.BREAKER"),
    ("lock", "RES.LOCK"),
    ("bulkhead", "RES.BULKHEAD"),
    ("idemp", "RES.IDEMP"),
    ("sflight", "RES.SFLIGHT"),
    ("dlq", "RES.DLQ"),
    ("guard", "RES.GUARD"),
];

/// What is behind it.
const WORDS: [(&str, &str); 45] = [
    ("granted", "calls that were let through"),
    ("denied", "calls that were refused"),
    ("peeked", "calls that only looked"),
    ("refunded", "calls that gave something back"),
    ("cells", "what calls took, in cells of their limits"),
    ("adopted", "keys that were taken over from redis-cell"),
    ("admitted", "calls that were let through"),
    ("reports_counted", "reports that were counted"),
    ("reports_stale", "reports of an earlier generation, which did not count"),
    ("reports_not_counted", "reports that did not count"),
    ("trips", "times that a breaker opened"),
    ("transitions", "changes of a state"),
    ("waited", "calls that had to wait"),
    ("timed_out", "calls that waited in vain"),
    ("renewed", "leases that were renewed"),
    ("released", "leases that were released"),
    ("lost", "leases that ended before they were released"),
    ("stale", "calls of owners who had lost their lease"),
    ("wait", "how long calls waited until they were granted"),
    ("hold", "how long leases were held"),
    ("replayed", "results that were replayed"),
    ("committed", "results that were stored"),
    ("results_dropped", "results that were too large to keep"),
    ("once_first", "events that were asked for the first time"),
    ("once_again", "events that were asked for again"),
    ("hits", "values that were there"),
    ("served_stale", "values that were served stale"),
    ("published", "values that were published"),
    ("invalidated", "values that were invalidated"),
    ("cleared", "values that were cleared"),
    ("retried", "failures that are retried"),
    ("died", "failures that killed their message"),
    ("known", "failures that the ledger had already"),
    ("conflicts", "messages that have the id of another one"),
    ("full", "messages that a full ledger refused"),
    ("parked", "messages that were parked"),
    ("taken", "messages that were given out"),
    ("done", "messages that were settled"),
    ("returned", "messages that were given back"),
    ("deaths", "deaths of messages, by failures and by leases that lapsed"),
    ("alerts", "alerts that were raised"),
    ("retries", "attempts that a stored policy retried"),
    ("stops", "attempts that a stored policy stopped"),
    ("bytes", "bytes that are kept"),
    ("keys", "keys that there are"),
];

/// Fields of their own.
const OWN: [(&str, &str); 11] = [
    ("eviction_risk", "Whether the server may evict keys of Resil: 1 if so."),
    ("blocked_waiters", "Connections that are blocked by a wait."),
    ("async_waiters", "Waits without blocking that are under way."),
    ("sessions", "Connections that the module remembers."),
    ("bound", "Leases that end with their connection."),
    ("oldest_wait_ms", "How long the call has waited that waits longest."),
    ("grants_taken_back", "Grants that reached nobody, and were taken back."),
    ("applied", "Replicated changes that were applied."),
    ("apply_refused", "Replicated changes that were refused: it should stay 0."),
    ("requests_refused", "Requests that were malformed."),
    ("internal_errors", "Errors of the module itself, after which it went on: it should stay 0."),
];

/// A sentence for a field without its `resil_`, and without the unit of a histogram.
pub fn help_of(field: &str) -> String {
    if let Some((_, sentence)) = OWN.iter().find(|(own, _)| *own == field) {
        return (*sentence).to_owned();
    }
    if field == "apply_unknown_version" {
        return "Replicated changes of a newer module, which were not applied: it should stay 0.".to_owned();
    }
    let (family, word) = field.split_once('_').unwrap_or((field, ""));
    let command = COMMANDS.iter().find(|(own, _)| *own == family).map(|(_, command)| *command);
    let text = WORDS.iter().find(|(own, _)| *own == word).map(|(_, text)| *text);
    match (command, text) {
        (Some(command), Some(text)) => format!("{command}: {text}."),
        _ if word == "keys" => format!("Keys of the kind {family}."),
        // A newer module counts something that this tool does not know.
        _ => format!("{field} of INFO resil."),
    }
}
