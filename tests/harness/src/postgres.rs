//! A Postgres server of one's own, from the package of the system: its folder, its port. It does not run as root: then it is `nobody`.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::folder::fresh_folder;
use crate::process::{Process, Signal};
use crate::wait::becomes_true;

const READY_BOUND: Duration = Duration::from_secs(60);
const NOBODY: u32 = 65_534;

/// A running server with one database, `postgres`, and one user of that name without a password.
#[derive(Debug)]
pub struct Postgres {
    folder: TempDir,
    user: Option<u32>,
    port: u16,
    process: Option<Process>,
    has_tls: bool,
}

/// Debian keeps each version in a folder of its own.
fn program(name: &str) -> PathBuf {
    let mut found: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .map(|versions| versions.flatten().map(|version| version.path().join("bin").join(name)).collect())
        .unwrap_or_default();
    found.retain(|path| path.exists());
    found.sort();
    found.pop().unwrap_or_else(|| PathBuf::from(name))
}

impl Postgres {
    /// Starts a server and waits until it replies. Panics with its log when it does not.
    pub fn start() -> Self {
        Self::start_with(|_| {})
    }

    /// The same with TLS, and with it alone: a certificate for `localhost` and 127.0.0.1, which [`root_certificate`](Self::root_certificate) signed.
    pub fn start_with_tls() -> Self {
        Self::start_with(|server| {
            server.make_certificates();
            server.has_tls = true;
            // Nobody is let in without.
            let rules = "hostssl all all 127.0.0.1/32 trust\n";
            fs::write(server.folder.path().join("data/pg_hba.conf"), rules).expect("written");
        })
    }

    /// The file of the certificate that signed the server's.
    pub fn root_certificate(&self) -> PathBuf {
        self.folder.path().join("data/root.pem")
    }

    fn make_certificates(&self) {
        let openssl = |args: &str| {
            let words = args
                .split_whitespace()
                .map(|word| if word == "NAMES" { "subjectAltName=DNS:localhost,IP:127.0.0.1" } else { word });
            let mut run = std::process::Command::new("openssl");
            let made = run.args(words).current_dir(self.data()).output().expect("openssl is there");
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        };
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        openssl(&format!("req -x509 {key} -keyout root.key -out root.pem -days 2 -subj /CN=root"));
        openssl(&format!(
            "req -x509 -CA root.pem -CAkey root.key {key} -keyout server.key -out server.crt -days 2 -subj /CN=localhost -addext NAMES -addext basicConstraints=critical,CA:FALSE"
        ));
        for file in ["server.key", "server.crt"] {
            let path = self.folder.path().join("data").join(file);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its own");
            chown(&path, self.user, self.user).expect("its owner");
        }
    }

    fn start_with(prepare: impl FnOnce(&mut Self)) -> Self {
        let folder = fresh_folder("postgres");
        let is_root = fs::metadata(folder.path()).is_ok_and(|folder| folder.uid() == 0);
        let user = is_root.then_some(NOBODY);
        if let Some(user) = user {
            chown(folder.path(), Some(user), Some(user)).expect("root gives its folder away");
        }
        let port =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port").local_addr().expect("bound").port();
        let mut server = Self { folder, user, port, process: None, has_tls: false };
        let data = server.data();
        let args = ["-D", &data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"];
        let made = server.run("initdb", &args);
        let status = made.wait_until_ended(READY_BOUND);
        assert!(status.is_some_and(|status| status.success()), "initdb failed:\n{}", server.log());
        prepare(&mut server);
        server.launch();
        server
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        Self::url_at(self.port)
    }

    /// The same behind a relay.
    pub fn url_at(port: u16) -> String {
        format!("postgres://postgres@127.0.0.1:{port}/postgres?connect_timeout=3")
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

    fn data(&self) -> String {
        self.folder.path().join("data").to_string_lossy().into_owned()
    }

    fn log_path(&self) -> PathBuf {
        // Beside the folder's content, of which the server may be the owner.
        self.folder.path().join("output.log")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn run(&self, name: &str, args: &[&str]) -> Process {
        let args: Vec<OsString> = args.iter().map(Into::into).collect();
        let program = program(name);
        let home = self.folder.path().to_string_lossy().into_owned();
        Process::spawn_as(self.user, &program, &args, &[("HOME", &home), ("LC_ALL", "C")], &self.log_path())
            .unwrap_or_else(|error| {
                panic!("{} ({error}): scripts/setup --brokers installs it", Path::new(&program).display())
            })
    }

    fn launch(&mut self) {
        let (data, port) = (self.data(), self.port.to_string());
        let ssl = if self.has_tls { "ssl=on" } else { "ssl=off" };
        let args = [
            "-D",
            &data,
            "-p",
            &port,
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "unix_socket_directories=",
            "-c",
            "fsync=off",
            "-c",
            "max_connections=200",
            "-c",
            ssl,
        ];
        // The processes of one that was killed hold its memory for a moment longer.
        let is_ready = becomes_true(READY_BOUND, || {
            if self.process.as_ref().is_none_or(|process| process.ended().is_some()) {
                std::thread::sleep(Duration::from_millis(200));
                self.process = Some(self.run("postgres", &args));
            }
            self.replies()
        });
        assert!(is_ready, "Postgres does not reply:\n{}", self.log());
    }

    /// Whether it is there for clients, by the words of its log since it was started last.
    fn replies(&self) -> bool {
        let is_listening = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok();
        std::thread::sleep(Duration::from_millis(20));
        let log = self.log();
        let ready = log.rfind("database system is ready to accept connections");
        is_listening
            && ready.is_some_and(|ready| log.rfind("starting PostgreSQL").is_none_or(|started| started < ready))
    }
}
