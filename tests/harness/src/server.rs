//! A server of one's own: started, asked until it replies, and gone on drop.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use redis::{Client, Connection, RedisResult};
use tempfile::TempDir;

use crate::counting;
use crate::flavor::Flavor;
use crate::memory;
use crate::options::{Options, quoted};
use crate::process::Process;

/// A server replies within milliseconds; the rest is for a loaded machine.
const READY_BOUND: Duration = Duration::from_secs(20);
const VALGRIND_READY_BOUND: Duration = Duration::from_secs(120);
/// No command of a test blocks longer than this on purpose.
const READ_BOUND: Duration = Duration::from_secs(30);
const CONNECT_BOUND: Duration = Duration::from_secs(5);
/// A free port can be taken by somebody else before the server binds it. Ten times in a row it is not.
const PORT_ATTEMPTS: u32 = 10;
const LOG_LINES_SHOWN: usize = 60;
/// The kernel allows 108 bytes in the path of a socket.
const SOCKET_PATH_BYTES_MAX: usize = 100;

/// A running server on a port of its own, in a folder of its own.
#[derive(Debug)]
pub struct Server {
    flavor: Flavor,
    folder: Folder,
    ports: Ports,
    is_cluster: bool,
    is_under_valgrind: bool,
    is_measured: bool,
    is_counted: bool,
    /// Absent between a stop and the next start.
    pub(crate) process: Option<Process>,
}

#[derive(Debug)]
enum Folder {
    Own(TempDir),
    Given(PathBuf),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    client: u16,
    cluster_bus: u16,
}

enum Trouble {
    PortTaken,
    Other(String),
}

impl Server {
    /// The server of the environment with the module under test and no data.
    pub fn fresh() -> Self {
        Self::start(Options::default())
    }

    /// Starts a server and waits until it replies. Panics with its log when it does not.
    pub fn start(options: Options) -> Self {
        let flavor = options.chosen_flavor();
        let folder = match &options.dir {
            Some(path) => Folder::Given(path.canonicalize().unwrap_or_else(|e| panic!("{}: {e}", path.display()))),
            None => Folder::Own(TempDir::with_prefix("resil-").expect("a folder for the server")),
        };
        let Options { is_cluster, is_under_valgrind, is_measured, is_counted, .. } = options;
        let (ports, process) = (Ports::free(), None);
        let mut server =
            Self { flavor, folder, ports, is_cluster, is_under_valgrind, is_measured, is_counted, process };
        fs::write(server.config_path(), server.config_text(&options)).expect("the folder is writable");
        server.launch();
        server
    }

    pub fn flavor(&self) -> &Flavor {
        &self.flavor
    }

    pub fn port(&self) -> u16 {
        self.ports.client
    }

    /// The second port of a cluster node.
    pub fn cluster_bus_port(&self) -> u16 {
        self.ports.cluster_bus
    }

    /// The server's own process id. Panics when it was stopped.
    pub fn pid(&self) -> u32 {
        self.running().pid()
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port())
    }

    /// Where data, configuration and log are.
    pub fn dir(&self) -> &Path {
        match &self.folder {
            Folder::Own(dir) => dir.path(),
            Folder::Given(path) => path,
        }
    }

    /// The whole log so far, over restarts too; also what the server and the module printed.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The errors that valgrind found so far; empty for a server that it does not watch.
    pub fn found_by_valgrind(&self) -> String {
        if self.is_under_valgrind { memory::found_by_valgrind(self.dir()) } else { String::new() }
    }

    /// A second way in beside the port, unless the folder's path is too long for one.
    pub fn unix_socket(&self) -> Option<PathBuf> {
        let path = self.dir().join("server.sock");
        (path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX).then_some(path)
    }

    /// Whether the process is there (a paused one is).
    pub fn is_alive(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.ended().is_none())
    }

    /// A client speaking RESP2.
    pub fn connect(&self) -> Connection {
        self.open(&self.url())
    }

    /// A client speaking RESP3.
    pub fn connect_resp3(&self) -> Connection {
        self.open(&format!("{}?protocol=resp3", self.url()))
    }

    /// Bare bytes in and out; reads give up after 30 s.
    pub fn raw(&self) -> TcpStream {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port()));
        let stream = TcpStream::connect_timeout(&address, CONNECT_BOUND)
            .unwrap_or_else(|error| self.fail(&format!("no connection: {error}")));
        stream.set_read_timeout(Some(READ_BOUND)).expect("a bound that is not zero");
        stream.set_nodelay(true).expect("a TCP socket");
        stream
    }

    fn open(&self, url: &str) -> Connection {
        connection(url, CONNECT_BOUND, READ_BOUND).unwrap_or_else(|error| self.fail(&format!("no connection: {error}")))
    }

    pub(crate) fn running(&self) -> &Process {
        self.process.as_ref().unwrap_or_else(|| panic!("{} was stopped before", self.label()))
    }

    /// Starts the process again on the same folder, on the same port unless somebody took it meanwhile.
    pub(crate) fn launch(&mut self) {
        for _ in 0..PORT_ATTEMPTS {
            match self.launch_once() {
                Ok(process) => {
                    self.process = Some(process);
                    return;
                }
                Err(Trouble::PortTaken) => self.ports = Ports::free(),
                Err(Trouble::Other(reason)) => self.fail(&reason),
            }
        }
        self.fail(&format!("{PORT_ATTEMPTS} free ports in a row were taken before the server could bind them"))
    }

    fn launch_once(&self) -> Result<Process, Trouble> {
        let logged_before = self.log().len();
        let mut args = vec![self.config_path().to_string_lossy().into_owned()];
        args.extend(["--port".into(), self.ports.client.to_string()]);
        if self.is_cluster {
            args.extend(["--cluster-port".into(), self.ports.cluster_bus.to_string()]);
        }
        let program = self.flavor.program();
        let fill = if self.is_measured { &[] } else { memory::fill() };
        let (program, args) = if self.is_under_valgrind {
            (Path::new("valgrind"), memory::under_valgrind(program, args, self.dir()))
        } else if self.is_counted {
            (Path::new("valgrind"), counting::under_callgrind(program, args, self.dir()))
        } else {
            (program, args.into_iter().map(OsString::from).collect())
        };
        let process = Process::spawn(program, &args, fill, &self.log_path());
        let process =
            process.map_err(|error| Trouble::Other(format!("{} did not start: {error}", program.display())))?;
        let bound = if self.is_under_valgrind || self.is_counted { VALGRIND_READY_BOUND } else { READY_BOUND };
        let deadline = Instant::now() + bound;
        while !self.replies(&process) {
            if let Some(status) = process.ended() {
                let clash = self.log().get(logged_before..).is_some_and(|new| new.contains("Address already in use"));
                return Err(if clash { Trouble::PortTaken } else { Trouble::Other(format!("ended with {status}")) });
            }
            if Instant::now() > deadline {
                return Err(Trouble::Other(format!("did not reply within {bound:?}")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(process)
    }

    /// Whether *this* process replies, and not another server that won the race for the port.
    fn replies(&self, process: &Process) -> bool {
        let asked = || -> RedisResult<String> {
            let mut connection = connection(&self.url(), Duration::from_secs(1), Duration::from_secs(2))?;
            let _: String = redis::cmd("PING").query(&mut connection)?;
            redis::cmd("INFO").arg("server").query(&mut connection)
        };
        match asked() {
            Ok(info) => info.lines().any(|line| line == format!("process_id:{}", process.pid())),
            Err(error) => error.code() == Some("NOAUTH"),
        }
    }

    fn config_text(&self, options: &Options) -> String {
        let path = |path: &Path| quoted(&path.to_string_lossy());
        let mut text = options.config_text();
        text += &format!("dir {}\nlogfile {}\n", path(self.dir()), path(&self.log_path()));
        if let Some(socket) = self.unix_socket() {
            text += &format!("unixsocket {}\n", path(&socket));
        }
        text
    }

    fn config_path(&self) -> PathBuf {
        self.dir().join("server.conf")
    }

    fn log_path(&self) -> PathBuf {
        self.dir().join("server.log")
    }

    fn label(&self) -> String {
        format!("{} on port {}", self.flavor.name(), self.port())
    }

    pub(crate) fn fail(&self, reason: &str) -> ! {
        panic!("{}: {reason}\n{}", self.label(), self.log_tail())
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let shown = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
        format!("--- the log of {} ends so:\n{}\n---", self.label(), shown.join("\n"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let crashed = self.process.as_ref().is_some_and(Process::crashed);
        self.process = None;
        if std::thread::panicking() {
            eprintln!("{}", self.log_tail());
        } else if crashed {
            self.fail("the server crashed during this test");
        }
        let found = self.found_by_valgrind();
        if !found.is_empty() {
            let text = format!("{}: valgrind found errors\n{found}", self.label());
            if std::thread::panicking() { eprintln!("{text}") } else { panic!("{text}") }
        }
    }
}

impl Ports {
    /// Two ports nobody has now, chosen by the system; held together so that they differ.
    fn free() -> Self {
        let bound = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let number = |listener: &TcpListener| listener.local_addr().expect("a bound listener").port();
        let (client, cluster_bus) = (bound(), bound());
        Self { client: number(&client), cluster_bus: number(&cluster_bus) }
    }
}

fn connection(url: &str, connect_bound: Duration, read_bound: Duration) -> RedisResult<Connection> {
    let connection = Client::open(url)?.get_connection_with_timeout(connect_bound)?;
    connection.set_read_timeout(Some(read_bound))?;
    connection.set_write_timeout(Some(read_bound))?;
    Ok(connection)
}
