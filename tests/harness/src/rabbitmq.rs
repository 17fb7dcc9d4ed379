//! A RabbitMQ broker of one's own, from the package of the system: its folder, its ports, its name service. No service is started or used.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::folder::fresh_folder;
use crate::process::{Process, Signal};
use crate::wait::{becomes_true, eventually};

/// It takes 9 s on an idle machine.
const READY_BOUND: Duration = Duration::from_secs(120);
/// It takes a second.
const REGISTERED_BOUND: Duration = Duration::from_secs(60);
const REPLY_BOUND: Duration = Duration::from_millis(500);
const LOG_BYTES_SHOWN: usize = 4_000;

/// A running broker. Users: `guest` may everything, `consumer` (password `in`) may not publish, `producer` (password `out`) only that.
#[derive(Debug)]
pub struct RabbitMq {
    folder: TempDir,
    port: u16,
    dist_port: u16,
    epmd_port: u16,
    /// The name service of Erlang, which would stay behind if the broker started it.
    _epmd: Process,
    process: Option<Process>,
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("a bound listener").port()
}

/// Where the packages put it, or where `RABBITMQ_SERVER` says.
fn program() -> PathBuf {
    std::env::var_os("RABBITMQ_SERVER").map_or_else(|| "/usr/lib/rabbitmq/bin/rabbitmq-server".into(), PathBuf::from)
}

const DEFINITIONS: &str = r#"{
  "users": [
    {"name": "guest", "password": "guest", "tags": "administrator"},
    {"name": "consumer", "password": "in", "tags": ""},
    {"name": "producer", "password": "out", "tags": ""}
  ],
  "vhosts": [{"name": "/"}],
  "permissions": [
    {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"},
    {"user": "consumer", "vhost": "/", "configure": ".*", "write": "\\.(dlx|dead)$", "read": ".*"},
    {"user": "producer", "vhost": "/", "configure": "^$", "write": ".*", "read": "^$"}
  ]
}"#;

impl RabbitMq {
    /// Larger messages it does not take.
    pub const MESSAGE_MAX: usize = 16 * 1024 * 1024;

    /// Starts a broker and waits until it replies. Panics with its log when it does not.
    pub fn start() -> Self {
        assert!(program().exists(), "RabbitMQ is not installed: scripts/setup --brokers does that");
        let folder = fresh_folder("rabbit");
        let (port, dist_port, epmd_port) = (free_port(), free_port(), free_port());
        let args: Vec<OsString> = ["-port", &epmd_port.to_string(), "-address", "127.0.0.1"].map(Into::into).to_vec();
        let epmd = Process::spawn(Path::new("epmd"), &args, &[], &folder.path().join("epmd.log")).expect("epmd starts");
        let mut broker = Self { folder, port, dist_port, epmd_port, _epmd: epmd, process: None };
        broker.write_config();
        broker.launch();
        broker
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        Self::url_at(self.port)
    }

    /// The same behind a relay.
    pub fn url_at(port: u16) -> String {
        format!("amqp://guest:guest@127.0.0.1:{port}/%2f")
    }

    /// Waits until a kill cannot make the broker forget a new quorum queue.
    ///
    /// RabbitMQ 3.10.8 confirms that a quorum queue is declared, and messages in it, before the name of the queue is in its file `names.dets`: that
    /// is written a second later. After a kill in between, the queue is started again under a new id, without its log, and gets no leader.
    pub fn wait_until_registered(&self, queue: &str) {
        let node = self.node();
        let names = self.path("mnesia").join(&node).join("quorum").join(&node).join("names.dets");
        // The name of the queue, and the tag of the value that follows it.
        let entry = format!("%2F_{queue}m").into_bytes();
        eventually(&format!("the broker has written the name of {queue}"), REGISTERED_BOUND, || {
            std::thread::sleep(Duration::from_millis(20));
            fs::read(&names).is_ok_and(|names| names.windows(entry.len()).any(|window| window == entry))
        });
    }

    /// Runs `rabbitmqctl`. Panics with what it says when it fails.
    pub fn control(&self, args: &[&str]) {
        let output = Command::new(program().with_file_name("rabbitmqctl"))
            .args(["-n", &self.node()])
            .args(args)
            .env("ERL_EPMD_PORT", self.epmd_port.to_string())
            .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
            .env("HOME", self.folder.path())
            .output()
            .expect("rabbitmqctl starts");
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{args:?}: {}{}", said(&output.stdout), said(&output.stderr));
    }

    /// Ends it as a crash would.
    pub fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.send(Signal::Kill);
            process.wait_until_ended(Duration::from_secs(10));
        }
    }

    /// Starts it again, with what it had stored.
    pub fn restart(&mut self) {
        self.kill();
        self.launch();
    }

    fn node(&self) -> String {
        format!("resil-{}@localhost", self.port)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write_config(&self) {
        fs::write(self.path("definitions.json"), DEFINITIONS).expect("the folder is writable");
        fs::write(self.path("enabled_plugins"), "[].\n").expect("the folder is writable");
        let config = format!(
            "listeners.tcp.1 = 127.0.0.1:{}\nloopback_users = none\nload_definitions = {}\ndisk_free_limit.absolute = 50MB\nconsumer_timeout = 5000\nmax_message_size = {}\n",
            self.port,
            self.path("definitions.json").display(),
            Self::MESSAGE_MAX
        );
        fs::write(self.path("rabbitmq.conf"), config).expect("the folder is writable");
        // Channels look at their timeouts every minute otherwise.
        fs::write(self.path("advanced.config"), "[{rabbit, [{channel_tick_interval, 1000}]}].\n")
            .expect("the folder is writable");
    }

    fn launch(&mut self) {
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let variables = [
            ("RABBITMQ_NODENAME", self.node()),
            ("RABBITMQ_NODE_PORT", self.port.to_string()),
            ("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1".to_owned()),
            ("RABBITMQ_DIST_PORT", self.dist_port.to_string()),
            ("RABBITMQ_MNESIA_BASE", text(self.path("mnesia"))),
            ("RABBITMQ_LOG_BASE", text(self.path("log"))),
            ("RABBITMQ_LOGS", "-".to_owned()),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", text(self.path("enabled_plugins"))),
            ("RABBITMQ_CONFIG_FILE", text(self.path("rabbitmq.conf"))),
            ("RABBITMQ_ADVANCED_CONFIG_FILE", text(self.path("advanced.config"))),
            ("RABBITMQ_GENERATED_CONFIG_DIR", text(self.path("config"))),
            ("RABBITMQ_SCHEMA_DIR", text(self.path("schema"))),
            ("RABBITMQ_CONF_ENV_FILE", "/dev/null".to_owned()),
            ("RABBITMQ_PID_FILE", text(self.path("pid"))),
            ("ERL_EPMD_PORT", self.epmd_port.to_string()),
            ("HOME", text(self.folder.path().to_owned())),
            // The broker is then the process itself, and ends with the tests; it reads nothing all the same.
            ("RABBITMQ_ALLOW_INPUT", "1".to_owned()),
            // A machine of tests has few cores, and others need them: no spinning.
            (
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                "-noinput +S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none".to_owned(),
            ),
        ];
        let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let process = Process::spawn(&program(), &[], &variables, &self.path("output.log"));
        self.process = Some(process.expect("RabbitMQ starts"));
        let is_ready = becomes_true(READY_BOUND, || self.replies() || self.has_ended());
        if !is_ready || self.has_ended() {
            let log = fs::read_to_string(self.path("output.log")).unwrap_or_default();
            let shown = log.len().saturating_sub(LOG_BYTES_SHOWN);
            panic!("RabbitMQ does not reply:\n{}", log.get(shown..).unwrap_or(&log));
        }
    }

    fn has_ended(&self) -> bool {
        self.process.as_ref().is_none_or(|process| process.ended().is_some())
    }

    /// Whether it greets as a broker does.
    fn replies(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)) else {
            // It does not help to ask more often.
            std::thread::sleep(Duration::from_millis(100));
            return false;
        };
        let _ = stream.set_read_timeout(Some(REPLY_BOUND));
        let mut first = [0; 1];
        stream.write_all(b"AMQP\x00\x00\x09\x01").is_ok() && stream.read_exact(&mut first).is_ok() && first == [1]
    }
}
