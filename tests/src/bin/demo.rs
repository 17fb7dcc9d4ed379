//! `make demo`: a server of its own, every command at work, and each reply in plain words.
//!
//! Needs the module (`make module`) and ends by itself.

use std::thread::JoinHandle;
use std::time::Duration;

use redis::{Connection, RedisResult, Value};
use resil_harness::{Server, eventually, ok, reply};

/// What the numbers of a limit mean.
const LIMIT: [&str; 5] = [
    "granted: cells taken; 0 is a denial",
    "capacity: the size of the bucket",
    "remaining: what could be taken now",
    "retry_after_ms: when to ask again; 0 if granted, -1 if never",
    "reset_after_ms: when the bucket is full again",
];
const TIER: &str = "capacity, remaining, retry_after_ms, reset_after_ms of this tier";

/// The tour: a line of explanation, a call, and what each element of its reply means. A title alone has no call; `& call`
/// waits on another connection, and `&` alone is its answer.
const TOUR: [(&str, &str, &[&str]); 93] = [
    ("# Rate limits", "", &[]),
    ("Ten per second for this user. The bucket holds ten, and one is taken.", "RES.GCRA user:42 10 1s", &LIMIT),
    (
        "A bucket of twenty that refills at ten per second; this call costs three.",
        "RES.GCRA user:43 10 1s BURST 20 COST 3",
        &LIMIT,
    ),
    (
        "More than there is: denied, with the time to wait. Nothing was taken.",
        "RES.GCRA user:43 10 1s BURST 20 COST 18",
        &LIMIT,
    ),
    ("More than the bucket holds: it can never be.", "RES.GCRA user:43 10 1s BURST 20 COST 21", &LIMIT),
    ("As many as there are, up to fifty: for a batch worker.", "RES.GCRA user:43 10 1s BURST 20 UPTO 50", &LIMIT),
    (
        "What was not used is given back.",
        "RES.GCRA user:43 10 1s BURST 20 REFUND 5",
        &["granted: cells given back", LIMIT[1], LIMIT[2], LIMIT[3], LIMIT[4]],
    ),
    ("One per minute; the first is free at once.", "RES.GCRA mail:7 1 1m", &LIMIT),
    (
        "A place in line instead of a denial: taken now, to be used after the wait.",
        "RES.GCRA mail:7 1 1m RESERVE 5m",
        &["granted: the cell is ours", LIMIT[1], LIMIT[2], "retry_after_ms: wait this long before using it", LIMIT[4]],
    ),
    (
        "Three limits under one key, all or none. The first numbers are the tightest tier's.",
        "RES.GCRA api:9 10 1s AND 1000 1h AND 5000 1d",
        &[LIMIT[0], LIMIT[1], LIMIT[2], LIMIT[3], LIMIT[4], TIER],
    ),
    (
        "Only looking: this works on replicas too and changes nothing.",
        "RES.GCRA.PEEK user:43 10 1s BURST 20",
        &["granted: what could be taken now", LIMIT[1], LIMIT[2], LIMIT[3], LIMIT[4]],
    ),
    (
        "Two keys at once, the user's and the organisation's: both pay, or none.",
        "RES.MGCRA 1 {t}:user 10 1s 10 {t}:org 500 1s 500",
        &[
            "granted: the cost, or 0",
            "refused_by: which key refused first; -1 for none",
            "capacity, remaining, retry_after_ms, reset_after_ms of this key",
        ],
    ),
    (
        "Never more than five in any sixty seconds: an exact sliding window.",
        "RES.WINDOW login:42 5 1m COST 5",
        &[
            LIMIT[0],
            "capacity: the limit",
            LIMIT[2],
            LIMIT[3],
            "reset_after_ms: when the newest of them leaves the window",
        ],
    ),
    (
        "The sixth attempt.",
        "RES.WINDOW login:42 5 1m",
        &[
            LIMIT[0],
            "capacity: the limit",
            LIMIT[2],
            "retry_after_ms: when the oldest has left the window",
            "reset_after_ms: when the newest has left it",
        ],
    ),
    (
        "Only looking at the window.",
        "RES.WINDOW.PEEK login:42 5 1m",
        &[
            "granted: what could be taken now",
            "capacity: the limit",
            LIMIT[2],
            LIMIT[3],
            "reset_after_ms: when the newest has left it",
        ],
    ),
    (
        "redis-cell's command, with redis-cell's reply.",
        "CL.THROTTLE user123 15 30 60",
        &[
            "limited: 0 is allowed, 1 is limited",
            "limit: max_burst + 1",
            "remaining: cells left",
            "retry_after: seconds; -1 if allowed",
            "reset_after: seconds until the bucket is full",
        ],
    ),
    ("# Circuit breaker", "", &[]),
    (
        "RES.BREAKER is configured once; CONFIG lasts and wins over what callers say.",
        "RES.BREAKER CONFIG resil:breaker:{payments} CONSECUTIVE 3 OPEN 500ms SUCCESSES 1 PROBES 1 LEASE 300ms",
        &["changed: 1 or 0"],
    ),
    (
        "May this instance call the payment service?",
        "RES.BREAKER ADMIT resil:breaker:{payments} CALLER instance-1",
        &[
            "admitted: 1 or 0",
            "state",
            "permit: to be brought back with the outcome",
            "retry_after_ms: 0 if admitted",
            "generation: grows with every change of state",
        ],
    ),
    (
        "It worked: the permit comes back.",
        "RES.BREAKER REPORT resil:breaker:{payments} $permit OK",
        &[
            "counted: 1 or 0",
            "state afterwards",
            "generation",
            "retry_after_ms: the rest of the open time",
            "why it counted or not",
        ],
    ),
    (
        "Another instance admits by itself and reports in batches: three failures in a row.",
        "RES.BREAKER TALLY resil:breaker:{payments} 0 instance-2 1 OK 4 FAIL 3 RUN 3",
        &[
            "counted: 1 or 0",
            "state afterwards: it tripped",
            "generation",
            "retry_after_ms: the rest of the open time",
            "why it counted or not",
        ],
    ),
    (
        "Now nobody in the fleet calls it.",
        "RES.BREAKER ADMIT resil:breaker:{payments} CALLER instance-1",
        &["admitted: denied", "state", "permit: none", "retry_after_ms: when the first probe may go", "generation"],
    ),
    ("Everything the breaker knows.", "RES.BREAKER STATE resil:breaker:{payments}", &[]),
    ("The open time passes.", "(600)", &[]),
    (
        "The first to ask is a probe, on a lease; with PROBES 1 there is one at a time.",
        "RES.BREAKER ADMIT resil:breaker:{payments} CALLER instance-3",
        &["admitted: as a probe", "state", "permit: of this probe alone", "retry_after_ms", "generation"],
    ),
    (
        "The next one has to wait until the lease ends, should the prober never be heard of again.",
        "RES.BREAKER ADMIT resil:breaker:{payments} CALLER instance-1",
        &["admitted: denied", "state", "permit: none", "retry_after_ms: when the lease ends", "generation"],
    ),
    ("The prober crashed: its lease passes.", "(400)", &[]),
    (
        "Its place is free again: nothing can wedge a breaker.",
        "RES.BREAKER ADMIT resil:breaker:{payments} CALLER instance-1",
        &["admitted: as a probe", "state", "permit", "retry_after_ms", "generation"],
    ),
    (
        "The probe succeeded, and SUCCESSES 1 is enough: it has recovered.",
        "RES.BREAKER REPORT resil:breaker:{payments} $permit OK",
        &["counted", "state afterwards", "generation", "retry_after_ms", "why it counted or not"],
    ),
    (
        "By hand, for an hour, saying who and why.",
        "RES.BREAKER FORCE resil:breaker:{payments} OPEN FOR 1h ACTOR ana REASON migration",
        &["state", "generation"],
    ),
    (
        "And closed again, with nothing counted; the configuration stays.",
        "RES.BREAKER RESET resil:breaker:{payments}",
        &["reset: whether there was anything to reset"],
    ),
    ("# Locks", "", &[]),
    (
        "worker-1 takes a lock for 30 seconds.",
        "RES.LOCK ACQUIRE orders worker-1 30s META nightly",
        &["granted", "fence: grows with every grant; stores can refuse a lower one", "lease_ms", "waited_ms"],
    ),
    (
        "worker-2, on another connection, waits in the server for it.",
        "& RES.LOCK ACQUIRE orders worker-2 30s WAIT 5s",
        &[],
    ),
    ("Who holds, and who waits?", "RES.LOCK INFO orders", &[]),
    ("A guard for scripts: does worker-1 hold it?", "RES.LOCK CHECK orders worker-1", &["holds: 1 or 0"]),
    (
        "A heartbeat of its own: the lease ends 30 seconds from now.",
        "RES.LOCK RENEW orders worker-1 30s",
        &["granted", "fence: the same", "lease_ms", "waited_ms"],
    ),
    ("It lets go ...", "RES.LOCK RELEASE orders worker-1", &["released", "held_ms"]),
    (
        "... and that moment worker-2 has its answer.",
        "&",
        &["granted", "fence: above the former", "lease_ms", "waited_ms: pushed, not polled"],
    ),
    (
        "worker-3 binds a lock to its connection: renewed while it is heard, released the moment it closes.",
        "RES.LOCK ACQUIRE mails worker-3 500 BOUND",
        &["granted", "fence", "lease_ms", "waited_ms"],
    ),
    (
        "One sign of life for everything that hangs on this connection.",
        "RES.HEARTBEAT",
        &["bound: how many", "lost since the last one"],
    ),
    (
        "An operator ends a holding by hand; the holder is told on resil:lost:worker-2.",
        "RES.LOCK BREAK orders ACTOR ana REASON stuck",
        &["broken: how many held it"],
    ),
    ("worker-2 finds out.", "RES.LOCK RENEW orders worker-2 30s", &["lost", "reason"]),
    ("# Bulkheads", "", &[]),
    (
        "At most two reports at once, in the whole fleet.",
        "RES.BULKHEAD ENTER reports job-1 2 30s",
        &["granted", "active", "queued", "lease_ms", "waited_ms"],
    ),
    (
        "The second.",
        "RES.BULKHEAD ENTER reports job-2 2 30s",
        &["granted", "active", "queued", "lease_ms", "waited_ms"],
    ),
    (
        "The third does not wait: full.",
        "RES.BULKHEAD ENTER reports job-3 2 30s",
        &["full", "active", "queued", "retry_after_ms: when the first lease ends"],
    ),
    (
        "The fourth waits, before all of lower priority.",
        "& RES.BULKHEAD ENTER reports job-4 2 30s WAIT 5s PRIORITY 0",
        &[],
    ),
    ("Who is inside, and who waits?", "RES.BULKHEAD INFO reports", &[]),
    (
        "A permit can be renewed, as a lock can.",
        "RES.BULKHEAD RENEW reports job-2 30s",
        &["granted", "fence", "lease_ms", "waited_ms"],
    ),
    ("job-1 leaves ...", "RES.BULKHEAD LEAVE reports job-1", &["released", "held_ms"]),
    ("... and job-4 is in.", "&", &["granted", "active", "queued", "lease_ms", "waited_ms"]),
    ("# Idempotency", "", &[]),
    (
        "A payment, told twice. The first one may do the work.",
        "RES.IDEMP BEGIN pay:42 try-1 30s FINGERPRINT 9f2c",
        &["run", "fence", "attempt: above 1 an earlier one may have had its effect", "waited_ms"],
    ),
    (
        "The duplicate, on another connection, waits for the result.",
        "& RES.IDEMP BEGIN pay:42 try-2 30s FINGERPRINT 9f2c WAIT 5s",
        &[],
    ),
    (
        "The same key for another request is a mistake.",
        "RES.IDEMP BEGIN pay:42 try-3 30s FINGERPRINT 77aa",
        &["mismatch"],
    ),
    (
        "It takes longer: the runner renews its lease.",
        "RES.IDEMP RENEW pay:42 try-1 30s",
        &["granted", "fence", "lease_ms", "zero"],
    ),
    ("Everything about the key.", "RES.IDEMP INFO pay:42", &[]),
    ("It is done ...", "RES.IDEMP COMMIT pay:42 try-1 24h paid", &["committed", "stored, or dropped if too large"]),
    ("... and that moment the duplicate has the result.", "&", &["replay", "ok or error", "result", "age_ms"]),
    ("Later calls get it, too.", "RES.IDEMP GET pay:42", &["replay", "ok or error", "result", "age_ms"]),
    (
        "Nothing happened? Then the next one may run at once.",
        "RES.IDEMP ABORT pay:43 try-1",
        &["lost", "reason: there was no such run"],
    ),
    ("Was this event seen before?", "RES.IDEMP ONCE event:7 1d", &["first: 1 the first time, 0 for a duplicate"]),
    ("# Single flight", "", &[]),
    (
        "A value that nobody has: one caller of the whole fleet leads.",
        "RES.SFLIGHT JOIN user:42 load-1 5s",
        &["lead: load it", "fence", "stale value: none", "waited_ms"],
    ),
    ("The others wait for what it loads.", "& RES.SFLIGHT JOIN user:42 load-2 5s WAIT 5s", &[]),
    ("Everything about the key.", "RES.SFLIGHT INFO user:42", &[]),
    (
        "It takes longer: the leader renews its lease.",
        "RES.SFLIGHT RENEW user:42 load-1 5s",
        &["granted", "fence", "lease_ms", "zero"],
    ),
    (
        "It is loaded: fresh for a minute, then stale for five more ...",
        "RES.SFLIGHT PUBLISH user:42 load-1 60s VALUE Ann STALE 5m",
        &["published", "followers: how many waited for it"],
    ),
    ("... and the value is in the follower's reply.", "&", &["value", "bytes", "age_ms", "fresh_ms"]),
    ("A hit.", "RES.SFLIGHT GET user:42", &["value", "bytes", "age_ms", "fresh_ms"]),
    (
        "The user changed. SOFT: it may be served as stale meanwhile.",
        "RES.SFLIGHT INVALIDATE user:42 SOFT",
        &["anything: 1 or 0"],
    ),
    (
        "One caller leads, with the stale value at hand.",
        "RES.SFLIGHT JOIN user:42 load-3 5s",
        &["lead", "fence", "stale value", "waited_ms"],
    ),
    ("The others are served at once.", "RES.SFLIGHT JOIN user:42 load-4 5s", &["stale", "bytes", "age_ms"]),
    (
        "The load failed: nobody tries again for a second.",
        "RES.SFLIGHT ABANDON user:42 load-3 RETRY 1s",
        &["abandoned"],
    ),
    ("# Dead letters", "", &[]),
    (
        "A message failed. The server keeps it and says when it will be retried.",
        "RES.DLQ FAIL orders kafka/42 ERROR timeout-after-3000 PAYLOAD {} TYPE Order AGGREGATE order-42",
        &["retry", "attempt", "delay_ms"],
    ),
    (
        "Its source delivers it once more: acknowledge it there, nothing is lost.",
        "RES.DLQ FAIL orders kafka/42 ERROR timeout PAYLOAD {}",
        &["known", "state", "attempt"],
    ),
    (
        "A worker takes what is due, and waits for it. The token names this call: asked again, it gets the same.",
        "RES.DLQ TAKE orders worker-1 30s WAIT 5s",
        &["taken", "waited_ms", "lease_ms", "id, fence, attempt, lapses, payload, fields"],
    ),
    (
        "There is no use in another attempt. It is dead, in a group with all that failed for the same reason.",
        "RES.DLQ FAIL orders kafka/42 FENCE $fence ERROR no-customer-9 FINAL",
        &["dead", "deaths", "group", "reason"],
    ),
    ("Nothing that died is dropped.", "RES.DLQ GET orders kafka/42", &[]),
    (
        "It returns only under a root cause that somebody wrote down.",
        "RES.DLQ DIAGNOSE orders Order/no-customer-<n> CATEGORY contract CAUSE late FIX PR-12 ACTOR ann",
        &["the number of the case"],
    ),
    (
        "What would a redrive do?",
        "RES.DLQ REDRIVE orders 1 DRYRUN ACTOR ann",
        &["dry run", "entries that match", "1: all were counted", "a sample"],
    ),
    (
        "At most a hundred in a minute, by any number of takers; ten first, the rest if half of those are resolved.",
        "RES.DLQ REDRIVE orders 1 RATE 100 1m ACTOR ann",
        &["started", "entries that match", "1: all were counted", "a sample"],
    ),
    (
        "A worker gets it like any other.",
        "RES.DLQ TAKE orders worker-2 30s WAIT 5s",
        &["taken", "waited_ms", "lease_ms", "id, fence, attempt, lapses, payload, fields"],
    ),
    ("This time it works.", "RES.DLQ DONE orders kafka/42 $fence", &["done"]),
    ("Verified: the entry is resolved, so the case can be closed.", "RES.DLQ CLOSE orders 1 ACTOR ann", &["closed"]),
    ("Who did what.", "RES.DLQ INFO orders AUDIT", &[]),
    ("# Refusals and errors", "", &[]),
    ("A malformed call names the argument, what was given and what is allowed.", "RES.GCRA user:42 ten 1s", &[]),
    ("A key of another type is left alone.", "RES.WINDOW user:43 5 1m", &[]),
    ("# What it counted", "", &[]),
    ("Counters and gauges of all of this, for monitoring.", "INFO resil", &[]),
];

const WIDTH: usize = 100;
/// Lines shown of a long reply.
const LINES_SHOWN: usize = 8;

fn main() {
    let server = Server::fresh();
    let mut connection = server.connect();
    println!("Resil on {}, {} with {}", server.url(), server.flavor().name(), loaded(&mut connection));
    let (mut permit, mut fence) = (String::new(), String::new());
    let mut others = Vec::new();
    for (text, call, meanings) in TOUR {
        if let Some(title) = text.strip_prefix("# ") {
            println!("\n{title}\n{}", "=".repeat(title.len()));
            continue;
        }
        if let Some(ms) = call.strip_prefix('(').and_then(|call| call.strip_suffix(')')) {
            println!("\n{}\n  ... {ms} ms", wrapped(text));
            std::thread::sleep(Duration::from_millis(ms.parse().unwrap_or(0)));
            continue;
        }
        if let Some(waiting) = call.strip_prefix("& ") {
            println!("\n{}\n  > {waiting}\n  (waits)", wrapped(text));
            others.push(wait_elsewhere(&server, waiting));
            continue;
        }
        if call == "&" {
            println!("\n{}", wrapped(text));
            if let Some(Ok(Ok(value))) = others.pop().map(JoinHandle::join) {
                show(&value, meanings);
            }
            continue;
        }
        let call = call.replace("$permit", &permit).replace("$fence", &fence);
        let Some(value) = ask(&mut connection, text, &call, meanings) else { continue };
        permit = permit_in(&call, &value).unwrap_or(permit);
        fence = fence_in(&call, &value).unwrap_or(fence);
    }
    show_examples(&mut connection);
    println!("\nEvery argument and reply: docs/commands/README.md. A server to play with: make run");
}

/// Calls, and shows the call with its reply or its error.
fn ask(connection: &mut Connection, text: &str, call: &str, meanings: &[&str]) -> Option<Value> {
    println!("\n{}\n  > {call}", wrapped(text));
    let value = reply(connection, &call.split(' ').collect::<Vec<_>>());
    match &value {
        Ok(value) => show(value, meanings),
        Err(error) => {
            let line = format!("(error) {} {}", error.code().unwrap_or("ERR"), error.detail().unwrap_or_default());
            println!("{}", indented(&line));
        }
    }
    value.ok()
}

/// Commands that the tour does not have, each with the example of its page: a new one is shown before it has a story.
fn show_examples(connection: &mut Connection) {
    for (name, page) in resil_tests::pages() {
        let name = name.replace('|', " ");
        let is_shown = TOUR.iter().any(|(_, call, _)| call.trim_start_matches("& ").starts_with(&name));
        if !is_shown && !name.starts_with("RES._") {
            let call = page["example"]["call"].as_str().unwrap_or(&name);
            ask(connection, page["summary"].as_str().unwrap_or_default(), call, &[]);
        }
    }
}

/// Calls on a connection of its own, and leaves it time to get in line.
fn wait_elsewhere(server: &Server, call: &str) -> JoinHandle<RedisResult<Value>> {
    let mut connection = server.connect();
    let words: Vec<String> = call.split(' ').map(str::to_owned).collect();
    let waiting = std::thread::spawn(move || {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        reply(&mut connection, &words)
    });
    let mut watching = server.connect();
    eventually("it waits", Duration::from_secs(10), || {
        let report: String = redis::from_redis_value(ok(&mut watching, &["INFO", "resil"])).unwrap_or_default();
        report.contains("resil_blocked_waiters:1")
    });
    waiting
}

/// The module's name and version as the server has it.
fn loaded(connection: &mut Connection) -> String {
    let modules = format!("{:?}", ok(connection, &["MODULE", "LIST"]));
    if modules.contains("resil") { "the module resil".into() } else { "no module".into() }
}

fn permit_in(call: &str, value: &Value) -> Option<String> {
    let (true, Value::Array(elements)) = (call.starts_with("RES.BREAKER ADMIT"), value) else { return None };
    let Value::BulkString(permit) = elements.get(2)? else { return None };
    Some(String::from_utf8_lossy(permit).into_owned())
}

/// The fence of the first entry that was taken.
fn fence_in(call: &str, value: &Value) -> Option<String> {
    let (true, Value::Array(elements)) = (call.starts_with("RES.DLQ TAKE"), value) else { return None };
    let Value::Array(entries) = elements.get(3)? else { return None };
    let Value::Array(fields) = entries.first()? else { return None };
    fields.get(1).map(plain)
}

/// One line per element, each with its meaning; long lists are cut short.
fn show(value: &Value, meanings: &[&str]) {
    let elements = match value {
        Value::Array(elements) => elements.as_slice(),
        Value::BulkString(text) => return show_lines(String::from_utf8_lossy(text).lines()),
        single => std::slice::from_ref(single),
    };
    if meanings.is_empty() {
        let flat: Vec<String> = elements.iter().map(plain).collect();
        // A map of an older protocol: name and value in turn.
        let is_text = elements.iter().all(|element| matches!(element, Value::BulkString(_)));
        let lines: Vec<String> = if is_text { flat } else { flat.chunks(2).map(|pair| pair.join(": ")).collect() };
        return show_lines(lines.iter().map(String::as_str));
    }
    for (index, element) in elements.iter().enumerate() {
        let meaning = meanings.get(index).copied().unwrap_or_default();
        match element {
            Value::Array(rows) => {
                for (row, numbers) in rows.iter().enumerate() {
                    let place = if row == 0 { format!("{})", index + 1) } else { String::new() };
                    println!("  {place:<3} {:<24} {meaning}", plain(numbers));
                }
            }
            _ => println!("  {:<3} {:<24} {meaning}", format!("{})", index + 1), plain(element)),
        }
    }
}

fn show_lines<'a>(lines: impl Iterator<Item = &'a str>) {
    let lines: Vec<&str> = lines.map(str::trim_end).filter(|line| !line.is_empty()).collect();
    for line in lines.iter().take(LINES_SHOWN) {
        println!("{}", indented(line));
    }
    if lines.len() > LINES_SHOWN {
        println!("      ... and {} lines more", lines.len() - LINES_SHOWN);
    }
}

/// A value on one line.
fn plain(value: &Value) -> String {
    match value {
        Value::Int(number) => number.to_string(),
        Value::BulkString(text) => String::from_utf8_lossy(text).into_owned(),
        Value::Nil => "(nil)".into(),
        Value::Array(elements) => elements.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => format!("{other:?}"),
    }
}

fn indented(line: &str) -> String {
    let room = WIDTH - 6;
    let cut: String = line.chars().take(room).collect();
    let shown = if line.chars().count() > room { format!("{}...", &cut[..cut.len() - 3]) } else { cut };
    format!("      {shown}")
}

/// Text of at most [`WIDTH`] characters a line.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always one");
        if line.len() + word.len() + 1 > WIDTH {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}
