//! Each way in, and each way to be refused.

use std::process::{Child, Command as Process, Stdio};

use resil_harness::{Flavor, Options};

use super::*;
use crate::error::Code;

/// Neither password nor address, in nothing that is shown.
fn keeps_secrets(error: &Error, secrets: &[&str]) {
    let shown = format!("{error} {error:?}");
    for secret in secrets.iter().chain(&["127.0.0.1", "localhost"]) {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_url_reaches_its_server_in_both_protocols() {
    let server = Server::fresh();
    for url in [server.url(), format!("{}?protocol=resp2", server.url())] {
        let redis = connect(&url).await.unwrap();
        works(&redis, "plain").await;
        assert_eq!(*redis.reach().borrow(), Reach::Here);
        assert!(matches!(redis.bind(), Bind::To { .. }));
        assert!(is_granted(&redis.call(&lock("a", "me", Duration::ZERO)).await));
        assert_eq!(holders_and_waiters(&redis, "a").await, (1, 0), "maps are read");
        redis.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn passwords_users_and_databases_are_used() {
    let server = Server::start(Options::default().config("requirepass", "hunter2"));
    let port = server.port();
    let mut admin =
        redis::Client::open(format!("redis://:hunter2@127.0.0.1:{port}")).unwrap().get_connection().unwrap();
    ok(&mut admin, &["ACL", "SETUSER", "ann", "on", ">s/e:c@ret", "~*", "+@all"]);
    let redis = connect(&format!("redis://ann:s%2Fe%3Ac%40ret@127.0.0.1:{port}/3")).await.unwrap();
    works(&redis, "in-three").await;
    assert!(is_granted(&redis.wait(&lock("in-three-too", "me", BOUND)).await));
    ok(&mut admin, &["SELECT", "3"]);
    assert_eq!(ok(&mut admin, &["DBSIZE"]), redis::Value::Int(2));
    for url in ["redis://:hunter3@", "redis://", "redis://ann:hunter2@", "redis://nobody:hunter2@"] {
        let error = connect(&format!("{url}127.0.0.1:{port}")).await.unwrap_err();
        assert_eq!(error.code(), Code::PermissionDenied, "{url}: {error:?}");
        keeps_secrets(&error, &["hunter", "nobody", "ann"]);
    }
    let error = connect(&format!("redis://:hunter2@127.0.0.1:{port}/9999")).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument, "{error:?}");
    keeps_secrets(&error, &["hunter2"]);
    let error = connect(&format!("redis://:hunter2@127.0.0.1:{port}/1?protocol=resp2")).await.map(|_| ());
    assert_eq!(error, Ok(()), "the older protocol takes passwords, too");
    let error = connect(&format!("redis://:hunter3@127.0.0.1:{port}/1?protocol=resp2")).await.unwrap_err();
    assert_eq!(error.code(), Code::PermissionDenied, "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_needs_no_more_than_the_commands_it_uses() {
    let server = Server::fresh();
    ok(&mut server.connect(), &["ACL", "SETUSER", "bob", "on", ">pw", "~limits:*", "-@all", "+res.gcra", "+hello"]);
    let redis = connect(&format!("redis://bob:pw@127.0.0.1:{}", server.port())).await.unwrap();
    works(&redis, "limits:1").await;
    for refused in [take(b"others"), Command::LockInfo(InfoCall { key: b"limits:1", limit: 1 })] {
        let error = redis.call(&refused).await.unwrap_err();
        assert_eq!(error.code(), Code::PermissionDenied);
        keeps_secrets(&error, &["bob", "pw"]);
    }
    tokio::time::sleep(super::super::supervisor::LOOK_EVERY * 2).await;
    works(&redis, "limits:1").await;
    assert_eq!(*redis.reach().borrow(), Reach::Here, "who may not PING is not away");
}

#[tokio::test(flavor = "multi_thread")]
async fn unix_sockets_are_reached() {
    let server = Server::fresh();
    let Some(path) = server.unix_socket() else { return eprintln!("skipped: the folder's path is too long") };
    for url in [format!("unix://{}", path.display()), format!("redis+unix://{}?db=1", path.display())] {
        let redis = connect(&url).await.unwrap();
        works(&redis, "socket").await;
        assert!(is_granted(&redis.wait(&lock("socket-lock", "me", BOUND)).await));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_the_module_is_distinguished() {
    let server = Server::start(Options::default().without_module());
    for protocol in ["resp2", "resp3"] {
        let error = connect(&format!("{}?protocol={protocol}", server.url())).await.unwrap_err();
        assert_eq!(error, Error::ModuleMissing);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_refuses_is_reported_in_its_words() {
    let server = Server::fresh();
    let redis = connected(&server).await;
    ok(&mut server.connect(), &["SET", "text", "x"]);
    let error = redis.call(&take(b"text")).await.unwrap_err();
    assert!(matches!(&error, Error::InvalidArgument(text) if text.contains("wrong kind of value")), "{error:?}");
    let error = redis.call(&lock("key", "", Duration::ZERO)).await.unwrap_err();
    assert!(matches!(&error, Error::InvalidArgument(text) if text.contains("owner")), "{error:?}");
    let shared = |owner| Command::LockAcquire(AcquireCall { shared: true, ..acquire("book", owner, Duration::ZERO) });
    assert!(is_granted(&redis.call(&shared("ann")).await));
    assert!(is_granted(&redis.call(&shared("bob")).await));
    let error = redis.call(&lock("book", "ann", Duration::ZERO)).await.unwrap_err();
    assert_eq!(error, Error::Deadlock { name: "book".into() });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_may_start_before_its_server() {
    let mut server = Server::fresh();
    server.kill9();
    let redis = connect(&server.url()).await.expect("being away is no error");
    assert_eq!(*redis.reach().borrow(), Reach::Away);
    let error = redis.call(&take(b"early")).await.unwrap_err();
    assert_eq!(error, Error::BackendUnavailable("the connection was refused"));
    let port = server.port();
    server.start_again();
    if server.port() == port {
        becomes(&redis, Reach::Here).await;
        works(&redis, "early").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connecting_to_a_server_that_is_silent_is_bounded() {
    let server = Server::fresh();
    server.pause();
    let begun = Instant::now();
    let redis = connect(&server.url()).await.expect("being away is no error");
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    let begun = Instant::now();
    assert_eq!(redis.call(&take(b"k")).await.unwrap_err().code(), Code::BackendUnavailable);
    assert!(begun.elapsed() < Duration::from_millis(500), "a client that is away says so at once");
    server.resume();
    becomes(&redis, Reach::Here).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_client_says_so_and_leaves_no_connection() {
    let server = Server::fresh();
    let redis = std::sync::Arc::new(connected(&server).await);
    assert!(is_granted(&redis.wait(&lock("a", "me", BOUND)).await));
    let waiting = tokio::spawn({
        let redis = redis.clone();
        async move { redis.wait(&lock("a", "you", BOUND)).await }
    });
    until("one waits", || async { holders_and_waiters(&redis, "a").await == (1, 1) }).await;
    redis.close().await;
    assert_eq!(waiting.await.unwrap(), Err(super::super::trouble::CLOSED));
    assert_eq!(redis.call(&take(b"k")).await, Err(super::super::trouble::CLOSED));
    assert_eq!(redis.wait(&lock("a", "them", BOUND)).await, Err(super::super::trouble::CLOSED));
    until("all connections are closed", || async { clients(&server, 'N').is_empty() }).await;
    redis.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_is_printed_holds_the_password() {
    let server = Server::start(Options::default().config("requirepass", "hunter2"));
    let options = ConnectSettings::new(format!("redis://:hunter2@127.0.0.1:{}", server.port()));
    let redis = Redis::connect(&options).await.unwrap();
    let shown = format!("{options:?} {redis:?}");
    assert!(!shown.contains("hunter2") && !shown.contains("127.0.0.1"), "{shown}");
}

/// A certificate for localhost, made by the program that most machines have.
pub(super) fn certificate(folder: &std::path::Path) -> bool {
    let run = Process::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args([
            "-addext",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-keyout",
            "key.pem",
            "-out",
            "cert.pem",
        ])
        .current_dir(folder)
        .stderr(Stdio::null())
        .status();
    run.is_ok_and(|status| status.success())
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_spoken_and_certificates_are_checked() {
    if let Ok(url) = std::env::var(TRUSTED_URL) {
        works(&connect(&url).await.unwrap(), "trusted").await;
        return println!("trusted and answered");
    }
    let folder = tempfile::tempdir().unwrap();
    if !certificate(folder.path()) {
        return eprintln!("skipped: no openssl to make a certificate with");
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let options = Options::default()
        .config("tls-port", port.to_string())
        .config("tls-auth-clients", "no")
        .config("tls-cert-file", file("cert.pem"))
        .config("tls-key-file", file("key.pem"));
    if !speaks_tls() {
        return eprintln!("skipped: {} is built without TLS", Flavor::from_env().name());
    }
    let _server = Server::start(options);
    let redis = connect(&format!("rediss://localhost:{port}/#insecure")).await.unwrap();
    works(&redis, "tls").await;
    assert!(is_granted(&redis.wait(&lock("tls-lock", "me", BOUND)).await));
    let error = connect(&format!("rediss://localhost:{port}")).await.unwrap_err();
    assert!(matches!(&error, Error::InvalidArgument(text) if text.contains("certificate")), "{error:?}");
    keeps_secrets(&error, &[]);
    // The roots of a system are read from the environment: a process of its own has another one.
    let again = Process::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "backend::redis::tests::connecting::tls_is_spoken_and_certificates_are_checked",
            "--nocapture",
        ])
        .env("SSL_CERT_FILE", file("cert.pem"))
        .env(TRUSTED_URL, format!("rediss://localhost:{port}"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(again.status.success() && said.contains("trusted and answered"), "{said}");
}

/// Set in the second process only.
const TRUSTED_URL: &str = "RESIL_TEST_TRUSTED_URL";

pub(super) fn speaks_tls() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let run = Process::new(Flavor::from_env().program())
        .args(["--port", "0", "--tls-port", "0", "--tls-auth-clients", "no", "--daemonize", "no", "--bogus", "x"])
        .current_dir(folder.path())
        .output();
    // Without TLS it is already the first of the options that is not known.
    run.is_ok_and(|output| {
        let said = [output.stdout, output.stderr].concat();
        !String::from_utf8_lossy(&said).contains("tls-port")
    })
}

/// A sentinel of our own, gone on drop.
pub(super) struct Sentinel {
    child: Child,
    pub(super) port: u16,
    _folder: tempfile::TempDir,
}

impl Sentinel {
    pub(super) fn watching(primary: &Server) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor orders 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds orders 1000\nsentinel failover-timeout orders 5000\n",
            primary.port()
        );
        std::fs::write(&config, text).unwrap();
        let child = Process::new(primary.flavor().program())
            .arg(&config)
            .arg("--sentinel")
            .stdout(Stdio::null())
            .spawn()
            .expect("a sentinel");
        Self { child, port, _folder: folder }
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_lead_to_the_primary_also_after_a_failover() {
    let mut primary = Server::fresh();
    let replica = Server::replica_of(&primary, Options::default());
    let sentinel = Sentinel::watching(&primary);
    let knows_all = || {
        let asked = || -> redis::RedisResult<Vec<std::collections::HashMap<String, String>>> {
            let mut connection =
                redis::Client::open(format!("redis://127.0.0.1:{}", sentinel.port))?.get_connection()?;
            redis::cmd("SENTINEL").arg("REPLICAS").arg("orders").query(&mut connection)
        };
        asked().is_ok_and(|replicas| !replicas.is_empty())
    };
    resil_harness::eventually("the sentinel knows the replica", BOUND, knows_all);
    // The first one is not there, and is passed over.
    let redis = connect(&format!("redis+sentinel://127.0.0.1:1,127.0.0.1:{}/orders/1", sentinel.port)).await.unwrap();
    works(&redis, "orders").await;
    let unknown = connect(&format!("redis+sentinel://127.0.0.1:{}/others", sentinel.port)).await.unwrap();
    let error = unknown.call(&take(b"k")).await.unwrap_err();
    assert_eq!(error, Error::BackendUnavailable("the sentinels do not know the service"));
    primary.kill9();
    becomes(&redis, Reach::Away).await;
    becomes(&redis, Reach::Here).await;
    works(&redis, "orders").await;
    let role = |server: &Server| -> String {
        let info: String = redis::from_redis_value(ok(&mut server.connect(), &["INFO", "replication"])).unwrap();
        info.lines().find_map(|line| line.strip_prefix("role:")).unwrap_or_default().to_owned()
    };
    assert_eq!(role(&replica), "master");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_server_keeps_connecting_for_three_command_timeouts() {
    let server = Server::start(Options::default());
    server.pause();
    let begun = Instant::now();
    let settings = ConnectSettings::new(server.url()).command_timeout(Duration::from_millis(400)).require_server();
    let error = Redis::connect(&settings).await.expect_err("it does not reply");
    server.resume();
    assert_eq!(error.code(), Code::BackendUnavailable);
    assert!(begun.elapsed() < Duration::from_millis(2_000), "{:?}", begun.elapsed());
}
