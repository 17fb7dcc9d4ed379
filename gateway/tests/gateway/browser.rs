//! The dashboard in Chromium against the program itself, on a real server: what is done there has happened here.
//!
//! Needs Node and Chromium, as the other tests of the dashboard do: `scripts/setup --languages --browser`.

use std::process::Command;
use std::time::Duration;

use resil::dead_letters::{DeadLettersSettings, FailureNote, Letter};
use resil::lock::LockSettings;
use resil::operator::{KeyFilter, KeyKind};
use resil_gateway::demo::EchoUpstream;
use resil_gateway::proto::resil::example::v1::EchoRequest;
use resil_harness::Server;
use tokio_util::sync::CancellationToken;

use crate::process::Process;
use crate::scene::{client, echo_call};

const TOKEN: &str = "govern-0123456789abcdef";

/// Runs the tests of `web/test/real` against a gateway.
fn walk(http: &str) -> Result<(), String> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned();
    let run = |command: &mut Command| {
        let output = command.output().map_err(|error| error.to_string())?;
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        if output.status.success() { Ok(()) } else { Err(said) }
    };
    run(Command::new(root.join("scripts/web")).arg("env"))?;
    let mut walk = Command::new("node");
    walk.args(["test/run.mjs", "real", http]).current_dir(root.join("gateway/web")).env("RESIL_TOKEN", TOKEN);
    run(&mut walk)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_act_in_the_browser_happens_at_the_server() {
    let server = Server::fresh();
    let store = resil::ConnectSettings::new(server.url()).require_server().connect().await.expect("the server");
    let policy = r#"{"retry": {"maxAttempts": 3}, "timeout": {"total": "5s"}, "breaker": {}}"#;
    store.policies().set("payments", policy).await.expect("valid");
    let reports = store.lock("reports", LockSettings::new().lease(Duration::from_secs(300))).expect("settings");
    let held = reports.until_acquired().await.expect("it is free");
    let orders = store.dead_letters("orders", DeadLettersSettings::new()).expect("settings");
    for number in 0..12 {
        let letter = Letter::of("orders", &number.to_string()).payload(format!("order {number}")).kind("OrderCreated");
        let note = FailureNote::new(format!("timeout after {number} ms")).dead_at_once();
        orders.fail(&letter, note).await.expect("stored");
    }
    let stop = CancellationToken::new();
    let worker = tokio::spawn({
        let (orders, stop) = (orders.clone(), stop.clone());
        async move {
            let judge = |_: &std::io::Error| -> resil::dead_letters::Settlement { unreachable!("nothing fails") };
            orders.run_until(&stop, judge, async |_| Ok::<_, std::io::Error>(())).await
        }
    });
    let echo = EchoUpstream::start(stop.clone()).await.expect("a port");
    let folder = tempfile::tempdir().expect("a folder");
    let text = format!(
        "tokens: [{{ name: governor, role: govern, token: {TOKEN} }}]
upstreams: {{ echo: {{ kind: grpc, address: \"http://{}\", policy: payments }} }}
",
        echo.address
    );
    let mut gateway = Process::with_config(&folder, &text, &server.url());
    // One call, so that there is a circuit.
    let mut request = tonic::Request::new(echo_call(&EchoRequest::default()));
    request.metadata_mut().insert("authorization", format!("Bearer {TOKEN}").parse().expect("a value"));
    client(&format!("http://{}", gateway.grpc)).execute_with_resilience(request).await.expect("a reply");

    let http = format!("http://{}", gateway.http);
    let walked = tokio::task::spawn_blocking(move || walk(&http)).await.expect("no panic");
    walked.unwrap_or_else(|said| panic!("{said}"));

    let operator = store.operator();
    let circuit = operator.breaker(&KeyKind::Policy.key("payments").expect("a key")).await.expect("a state");
    let forced = circuit.forced.expect("forced");
    assert_eq!((forced.by.as_str(), forced.reason.as_str()), ("ann", "once more"));
    tokio::time::timeout(Duration::from_secs(10), held.held().until_lost()).await.expect("it was taken away");
    let history = store.policies().history("payments").await.expect("a history");
    let reported: Vec<_> =
        history.iter().map(|each| (each.version, each.actor.as_str(), each.reason.as_str())).collect();
    assert_eq!(reported[..2], [(3, "ann", "as it was"), (2, "ann", "one more attempt")]);
    let ledger = operator.ledgers(&KeyFilter::default()).await.expect("a list").pop().expect("one");
    assert_eq!((ledger.dead, ledger.resolved, ledger.cases_open), (0, 12, 0));
    gateway.signal("-TERM");
    assert_eq!(gateway.ended(), Some(0));
    stop.cancel();
    let _ = worker.await;
}
