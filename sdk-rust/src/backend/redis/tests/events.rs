//! What the server publishes reaches holders and breakers at once, in every mode.

use resil_harness::{Cluster, Options, reply};

use super::clusters;
use super::connecting::{Sentinel, certificate, speaks_tls};
use super::*;
use crate::breaker::{Breaker, BreakerSettings};
use crate::client::Client;
use crate::error::Code;
use crate::lock::LockSettings;

/// Locks that would be renewed after twenty seconds, and a circuit that would stay open for an hour: whatever is heard
/// before was published.
const LEASE: Duration = Duration::from_secs(60);
const OPEN: Duration = Duration::from_secs(3_600);
/// What is promised, for 99 of 100.
const AT_ONCE: Duration = Duration::from_millis(100);
const LOCK: &str = "resil:lock:{stock}";
const BREAKER: &str = "resil:breaker:{payments}";

async fn client(url: &str) -> Client {
    ConnectSettings::new(url).name("shop").connect().await.expect("a server that is there")
}

/// What is subscribed to at any of the servers.
fn channels(servers: &[&Server]) -> Vec<String> {
    let of = |server: &&Server| -> Vec<String> {
        redis::from_redis_value(ok(&mut server.connect(), &["PUBSUB", "CHANNELS", "resil:*"])).expect("texts")
    };
    let mut channels: Vec<String> = servers.iter().flat_map(of).collect();
    channels.sort();
    channels
}

/// A breaker that has tripped, and knows it.
async fn tripped(client: &Client) -> Breaker {
    let options = BreakerSettings::new().consecutive_failures(1).open_for(OPEN);
    let breaker = client.breaker("payments", options).expect("valid");
    let _ = breaker.call(async || Err::<(), _>(())).await;
    assert_eq!(breaker.admit().await.map(drop).expect_err("open").code(), Code::CircuitOpen);
    breaker
}

async fn is_admitted(breaker: &Breaker) -> bool {
    breaker.admit().await.map(drop).is_ok()
}

/// How long it took until `is_so`.
async fn took(what: &str, mut is_so: impl AsyncFnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < BOUND, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
    begun.elapsed()
}

fn judge(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!("{what}: {} tries, p50 {:?}, p99 {:?}, worst {:?}", times.len(), at(50), at(99), at(100));
    assert!(at(99) < AT_ONCE, "{what}: p99 {:?}", at(99));
}

/// So often each thing is done to a lock and to a breaker of a client of `url`, which leads to `servers`.
async fn all_is_heard_at_once(mode: &str, url: &str, servers: &[&Server], tries: usize) {
    let client = client(url).await;
    let home = |key: &str| -> redis::Connection {
        let has = |server: &&&Server| reply(&mut server.connect(), &["EXISTS", key]) == Ok(redis::Value::Int(1));
        servers.iter().find(has).expect("one of them has it").connect()
    };
    let lock = client.lock("stock", LockSettings::new().lease(LEASE)).unwrap();
    let first = lock.acquire().await.expect("free");
    let breaker = tripped(&client).await;
    until("it listens", || async { channels(servers).len() == 2 }).await;
    first.release().await.expect("released");
    let mut changes = Vec::new();
    for _ in 0..tries {
        let tripped = tripped(&client).await;
        let mut home = home(BREAKER);
        ok(&mut home, &["RES.BREAKER", "RESET", BREAKER]);
        changes.push(took("a reset is heard", async || is_admitted(&tripped).await).await);
        ok(&mut home, &["RES.BREAKER", "FORCE", BREAKER, "OPEN"]);
        changes.push(took("a force is heard", async || !is_admitted(&tripped).await).await);
        ok(&mut home, &["RES.BREAKER", "FORCE", BREAKER, "DISABLED"]);
        changes.push(took("another one is heard", async || is_admitted(&tripped).await).await);
        ok(&mut home, &["RES.BREAKER", "FORCE", BREAKER, "AUTO"]);
        until("it knows", || async { breaker.last_known_state() == Some(crate::breaker::State::Closed) }).await;
    }
    judge(&format!("{mode}, changes of a breaker"), changes);
    // Last, since a flush takes everything.
    let mut losses = Vec::new();
    for words in [vec!["RES.LOCK", "BREAK", LOCK], vec!["DEL", LOCK], vec!["FLUSHALL"]] {
        for _ in 0..tries {
            let guard = lock.acquire().await.expect("free");
            let lost = guard.lost();
            let mut home = home(LOCK);
            let begun = Instant::now();
            ok(&mut home, &words);
            tokio::time::timeout(BOUND, lost.cancelled()).await.expect("reported");
            losses.push(begun.elapsed());
            assert!(!guard.is_held());
        }
    }
    judge(&format!("{mode}, losses"), losses);
}

#[tokio::test(flavor = "multi_thread")]
async fn losses_and_operator_actions_are_heard_at_once() {
    let server = Server::fresh();
    all_is_heard_at_once("plain", &server.url(), &[&server], 40).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn they_are_heard_over_resp2_sockets_and_few_rights() {
    let server = Server::fresh();
    all_is_heard_at_once("resp2", &format!("{}?protocol=resp2", server.url()), &[&server], 5).await;
    if let Some(socket) = server.unix_socket() {
        all_is_heard_at_once("unix", &format!("unix://{}", socket.display()), &[&server], 5).await;
    }
    let rights = "ACL SETUSER app on >secret ~resil:* &resil:* -@all +hello +ping +subscribe +unsubscribe \
                  +res.lock +res.breaker";
    ok(&mut server.connect(), &rights.split_whitespace().collect::<Vec<_>>());
    let url = format!("redis://app:secret@127.0.0.1:{}", server.port());
    all_is_heard_at_once("a user", &url, &[&server], 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn they_are_heard_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    if !certificate(folder.path()) || !speaks_tls() {
        return eprintln!("skipped: no openssl, or a server without TLS");
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let options = Options::default()
        .config("tls-port", port.to_string())
        .config("tls-auth-clients", "no")
        .config("tls-cert-file", file("cert.pem"))
        .config("tls-key-file", file("key.pem"));
    let server = Server::start(options);
    all_is_heard_at_once("TLS", &format!("rediss://localhost:{port}/#insecure"), &[&server], 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn they_are_heard_from_every_node_and_behind_sentinels() {
    let cluster = Cluster::start(3, Options::default());
    let nodes: Vec<&Server> = cluster.nodes().iter().collect();
    all_is_heard_at_once("cluster", &clusters::url(&cluster), &nodes, 5).await;
    let primary = Server::fresh();
    let sentinel = Sentinel::watching(&primary);
    let url = format!("redis+sentinel://127.0.0.1:{}/orders", sentinel.port);
    until("the sentinel replies", || async { std::net::TcpStream::connect(("127.0.0.1", sentinel.port)).is_ok() })
        .await;
    all_is_heard_at_once("sentinel", &url, &[&primary], 5).await;
}

/// What is published while nobody listens is made up for as soon as somebody does again.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_cut_subscription_missed_is_asked_for() {
    let server = Server::fresh();
    let client = client(&server.url()).await;
    let lock = client.lock("stock", LockSettings::new().lease(LEASE).unbound()).unwrap();
    let guard = lock.acquire().await.expect("free");
    let breaker = tripped(&client).await;
    until("it listens", || async { channels(&[&server]).len() == 2 }).await;
    let mut connection = server.connect();
    // All at once, so that nobody can be back in between.
    let mut script = redis::pipe();
    script.atomic().cmd("CLIENT").arg(&["KILL", "TYPE", "pubsub"]);
    script.cmd("RES.LOCK").arg(&["BREAK", LOCK]).cmd("RES.BREAKER").arg(&["RESET", BREAKER]);
    script.query::<()>(&mut connection).expect("done");
    let lost = took("the loss is found", async || !guard.is_held()).await;
    let reset = took("the reset is found", async || is_admitted(&breaker).await).await;
    println!("found after {lost:?} and {reset:?}");
    assert!(lost.max(reset) < Duration::from_secs(2), "{lost:?} {reset:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_in_use_is_subscribed_to() {
    let server = Server::fresh();
    let client = client(&server.url()).await;
    for _ in 0..20 {
        client
            .lock("brief", LockSettings::new())
            .unwrap()
            .acquire()
            .await
            .expect("free")
            .release()
            .await
            .expect("released");
    }
    assert_eq!(channels(&[&server]), Vec::<String>::new(), "a lock that is let go at once needs nobody to listen");
    let breaker = client.breaker("payments", BreakerSettings::new()).expect("valid");
    assert!(is_admitted(&breaker).await);
    let guard = client.lock("stock", LockSettings::new()).unwrap().acquire().await.expect("free");
    let owners = guard.held().owner().rsplit_once(':').expect("client and number").0.to_owned();
    let wanted = vec![format!("resil:events:{BREAKER}"), format!("resil:lost:{owners}")];
    until("both are listened to", || async { channels(&[&server]) == wanted }).await;
    drop(breaker);
    until("the breaker is gone", || async { channels(&[&server]) == wanted[1..] }).await;
    drop((guard, client));
    until("all connections are closed", || async {
        clients(&server, 'N').is_empty() && clients(&server, 'P').is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_not_subscribe_goes_on() {
    let server = Server::fresh();
    ok(&mut server.connect(), &["ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "resetchannels"]);
    let client = client(&format!("redis://app:secret@127.0.0.1:{}", server.port())).await;
    let guard = client
        .lock("stock", LockSettings::new().lease(Duration::from_millis(600)))
        .unwrap()
        .acquire()
        .await
        .expect("free");
    let breaker = client.breaker("payments", BreakerSettings::new()).expect("valid");
    assert!(is_admitted(&breaker).await);
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(guard.is_held(), "it is renewed");
    ok(&mut server.connect(), &["DEL", LOCK]);
    let lost = took("the next renewal tells", async || !guard.is_held()).await;
    assert!(lost < Duration::from_secs(2), "{lost:?}");
    assert_eq!(channels(&[&server]), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_hears_of_trips_elsewhere_by_itself() {
    let server = Server::start(Options::default());
    let (watching, calling) = (client(&server.url()).await, client(&server.url()).await);
    let breaker = watching.breaker("payments", BreakerSettings::new()).expect("valid");
    let (heard, reported) = std::sync::mpsc::channel();
    breaker.on_transition(move |transition| {
        let _ = heard.send((transition.previous.text(), transition.new.text()));
    });
    until("it listens, and knows where it stands", || async {
        !channels(&[&server]).is_empty() && breaker.last_known_state().is_some()
    })
    .await;
    let _tripped = tripped(&calling).await;
    let first = tokio::task::spawn_blocking(move || reported.recv_timeout(BOUND)).await.expect("no panic");
    assert_eq!(first, Ok(("closed", "open")));
}
