//! What is said in the log of a process whose server comes and goes, and of one that just ends. A program of its own: what is
//! logged by the background thread goes to the subscriber of the whole process.
#![cfg(feature = "redis")]

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use resil::limiter::Limit;
use resil::{Away, Code, ConnectSettings, Notice, Status};
use resil_harness::{Options, Server, ok};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Every line from INFO on, as `LEVEL message field=value`.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.target().starts_with("resil")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().push(line.0);
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}
    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
    fn enter(&self, _span: &Id) {}
    fn exit(&self, _span: &Id) {}
}

#[test]
fn an_absent_or_refusing_server_is_one_warning() {
    let lines = Lines::default();
    tracing::subscriber::set_global_default(lines.clone()).expect("the only one");
    let mut server = Server::start(Options::default().config("requirepass", "geheim"));
    let (port, url) = (server.port().to_string(), server.url().replace("redis://", "redis://:geheim@"));
    server.kill9();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let notices = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&notices);
    let options = ConnectSettings::new(url).on_notice(move |notice| heard.lock().push(notice.clone()));
    let client = runtime.block_on(options.connect()).expect("it may come later");
    std::thread::sleep(Duration::from_secs(3));
    let said = lines.0.lock().clone();
    assert_eq!(said.len(), 1, "once, however often it is tried: {said:?}");
    assert!(said[0].starts_with("WARN") && said[0].contains("cannot be reached"), "{said:?}");
    assert!(said[0].contains(&port) && said[0].contains("127.0.0.1"), "where: {said:?}");
    assert!(said[0].contains("refused"), "and why: {said:?}");

    server.start_again();
    let begun = Instant::now();
    while client.health().overall != Status::Healthy {
        assert!(begun.elapsed() < Duration::from_secs(10), "it does not come back");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(100));
    let said = lines.0.lock().clone();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[1].starts_with("INFO") && said[1].contains("is back") && said[1].contains(&port), "{said:?}");

    let heard = notices.lock().split_off(0);
    let [Notice::Away { address, reason }, Notice::Back { address: back }] = &heard[..] else { panic!("{heard:?}") };
    assert!(
        address.contains(&port) && address == back && reason.contains("refused"),
        "the same, to a listener: {heard:?}"
    );
    assert!(!format!("{heard:?}").contains("geheim"), "no secrets: {heard:?}");

    // A command that this user may not run: one warning with its name, and one line when it may again.
    let mut operator = server.connect();
    ok(&mut operator, &["AUTH", "geheim"]);
    ok(&mut operator, &["ACL", "SETUSER", "default", "-res.gcra"]);
    let limiter = client.limiter("api", Limit::per_second(5).when_away(Away::Closed)).expect("valid");
    for _ in 0..3 {
        assert_eq!(runtime.block_on(limiter.check("ann")).expect_err("refused").code(), Code::PermissionDenied);
    }
    ok(&mut operator, &["ACL", "SETUSER", "default", "+res.gcra"]);
    for _ in 0..3 {
        runtime.block_on(limiter.check("ann")).expect("allowed");
    }
    let refused = lines.0.lock().split_off(2);
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert!(refused[0].starts_with("WARN") && refused[0].contains("RES.GCRA is refused"), "{refused:?}");
    assert!(refused[1].starts_with("INFO") && refused[1].contains("RES.GCRA"), "{refused:?}");

    let heard = notices.lock().clone();
    let [Notice::Refused { reason, .. }, Notice::Back { .. }] = &heard[..] else { panic!("{heard:?}") };
    assert!(reason.contains("RES.GCRA is refused"), "nobody says that the server is away: {heard:?}");

    // A program that ends: its runtime goes first, then whatever it holds, and nobody called `shutdown`.
    drop(runtime);
    drop(client);
    std::thread::sleep(Duration::from_millis(300));
    let said = lines.0.lock().clone();
    assert_eq!(said.len(), 2, "nothing is said at the end: {said:?}");
    assert!(!said.iter().any(|line| line.contains("geheim")), "no secrets: {said:?}");
}
