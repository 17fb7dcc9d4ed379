//! The SDK over a real server, beside redis-rs on a multiplexed connection of its own to the same server.
//!
//! 64 tasks ask one after the other, as fast as they are answered, on a runtime with a thread for each core. All ways run in turns, in
//! slices of a fraction of a second; a ratio is the median over the turns, of a slice and the slice of GET beside it.
//!
//! A latency is that of one call as its task sees it. With 64 tasks on a busy connection most of it is waiting in the queue:
//! p99 says what a full house does, not what one call costs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use resil::breaker::{Breaker, BreakerSettings};
use resil::limiter::{Limit, Limiter};
use resil_harness::{Options, Server};

pub const NAME: &str = "server";

const TASKS: usize = 64;
/// Short, so that a slice and the slice of GET beside it meet the same weather.
const SLICE: Duration = Duration::from_millis(100);
const TURNS: usize = 75;
const TURNS_QUICK: usize = 2;
const PER_SECOND: u32 = 1_000_000_000;

#[derive(Clone)]
struct Means {
    connection: MultiplexedConnection,
    limiter: Limiter,
    breaker: Breaker,
    exact: Breaker,
    keys: Arc<[String]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Check,
    Get,
    Protected,
    /// The same command as the limiter's, without the SDK.
    Gcra,
    /// Every call asks and reports.
    Exact,
}

/// As they are run. What bars are about is beside GET, what costs a bar nothing is further off.
const WAYS: [Way; 5] = [Way::Check, Way::Get, Way::Protected, Way::Gcra, Way::Exact];

struct Slice {
    per_second: f64,
    median_us: f64,
    p99_us: f64,
}

impl Way {
    fn text(self) -> &'static str {
        match self {
            Self::Get => "redis-rs: GET",
            Self::Gcra => "redis-rs: RES.GCRA, what the limiter sends",
            Self::Check => "SDK: Limiter::check",
            Self::Protected => "SDK: Breaker around redis-rs' GET",
            Self::Exact => "SDK: the same, CountingMode::Exact (two commands more)",
        }
    }

    async fn once(self, means: &mut Means, task: usize) {
        let (connection, key) = (&mut means.connection, means.keys[task].as_str());
        match self {
            Self::Get => get(connection, key).await.expect("it replies"),
            Self::Gcra => {
                let granted: Vec<i64> = gcra(key).query_async(connection).await.expect("it replies");
                assert_eq!(granted[0], 1);
            }
            Self::Check => assert!(means.limiter.check(key).await.expect("it replies").is_granted()),
            Self::Protected => means.breaker.call(|| get(connection, key)).await.expect("it replies"),
            Self::Exact => means.exact.call(|| get(connection, key)).await.expect("it replies"),
        }
    }

    async fn slice(self, means: &Means) -> Slice {
        let began = Instant::now();
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let mut means = means.clone();
                tokio::spawn(async move {
                    let mut took_ns = Vec::new();
                    let mut last = began.elapsed();
                    while last < SLICE {
                        self.once(&mut means, task).await;
                        let now = began.elapsed();
                        took_ns.push((now - last).as_nanos() as u64);
                        last = now;
                    }
                    took_ns
                })
            })
            .collect();
        let mut took_ns = Vec::new();
        for task in tasks {
            took_ns.extend(task.await.expect("it does not panic"));
        }
        let per_second = took_ns.len() as f64 / began.elapsed().as_secs_f64();
        took_ns.sort_unstable();
        let us_at = |part: usize| took_ns[(took_ns.len() * part / 100).min(took_ns.len() - 1)] as f64 / 1_000.0;
        Slice { per_second, median_us: us_at(50), p99_us: us_at(99) }
    }
}

async fn get(connection: &mut MultiplexedConnection, key: &str) -> redis::RedisResult<()> {
    let _: Option<Vec<u8>> = connection.get(key).await?;
    Ok(())
}

fn gcra(key: &str) -> redis::Cmd {
    let mut command = redis::cmd("RES.GCRA");
    command.arg(format!("raw:{{{key}}}")).arg(PER_SECOND).arg("1s");
    command
}

/// What the server is reached over, and what is promised of it.
struct Transport {
    name: &'static str,
    url: String,
    /// How many times as many checks as redis-rs makes GETs.
    least: f64,
}

pub fn print(quick: bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let tls_port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let can_tls = makes_certificate(folder.path());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let mut options = Options::default();
    if can_tls {
        options = options
            .config("tls-port", tls_port.to_string())
            .config("tls-auth-clients", "no")
            .config("tls-cert-file", file("cert.pem"))
            .config("tls-key-file", file("key.pem"));
    }
    let server = Server::start(options);
    print_over(&Transport { name: "plain TCP", url: server.url(), least: 1.3 }, quick);
    if can_tls {
        let url = format!("rediss://localhost:{tls_port}/#insecure");
        print_over(&Transport { name: "TLS", url, least: 0.9 }, quick);
    }
}

/// False where there is no openssl.
fn makes_certificate(folder: &std::path::Path) -> bool {
    let made = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(folder)
        .output();
    made.is_ok_and(|output| output.status.success())
}

fn print_over(transport: &Transport, quick: bool) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let turns = if quick { TURNS_QUICK } else { TURNS };
    let slices = runtime.block_on(async {
        let mut means = means(&transport.url).await;
        for way in WAYS {
            way.once(&mut means, 0).await;
        }
        let mut slices: [Vec<Slice>; WAYS.len()] = Default::default();
        for turn in 0..turns {
            eprintln!("server: turn {} of {turns}", turn + 1);
            for step in 0..WAYS.len() {
                let index = (turn + step) % WAYS.len();
                slices[index].push(WAYS[index].slice(&means).await);
            }
        }
        slices
    });
    println!(
        "\n### Over a server, {}: {TASKS} tasks, {turns} slices of {} ms each\n",
        transport.name,
        SLICE.as_millis()
    );
    println!("| | calls/s | x GET | p50, us | p99, us |\n| --- | ---: | ---: | ---: | ---: |");
    let rate = |index: usize, turn: usize| slices[index][turn].per_second;
    let ratios = WAYS.map(|way| {
        let index = way as usize;
        median((0..turns).map(|turn| rate(index, turn) / rate(Way::Get as usize, turn)))
    });
    for way in [Way::Get, Way::Gcra, Way::Check, Way::Protected, Way::Exact] {
        let own = &slices[way as usize];
        println!(
            "| {} | {:.0} k | {:.2} | {:.0} | {:.0} |",
            way.text(),
            median(own.iter().map(|slice| slice.per_second)) / 1_000.0,
            ratios[way as usize],
            median(own.iter().map(|slice| slice.median_us)),
            median(own.iter().map(|slice| slice.p99_us)),
        );
    }
    let verdict = |is_met: bool| if is_met { "pass" } else { "**miss**" };
    let (check, protected) = (ratios[Way::Check as usize], 1.0 / ratios[Way::Protected as usize]);
    println!("\n| promise | measured | |\n| --- | --- | --- |");
    let least = transport.least;
    println!("| Limiter::check at least {least}x redis-rs' GET | {check:.2}x | {} |", verdict(check >= least));
    let same = check / ratios[Way::Gcra as usize];
    println!("| (no bar) Limiter::check beside its own command by redis-rs | {same:.2}x | |");
    println!("| a protected GET takes at most 1.1x a GET | {protected:.2}x | {} |", verdict(protected <= 1.1));
}

async fn means(url: &str) -> Means {
    let client = resil::connect(url).await.expect("the server is there");
    let plain = redis::Client::open(url).expect("a URL");
    let mut connection = plain.get_multiplexed_async_connection().await.expect("the server is there");
    let keys: Arc<[String]> = (0..TASKS).map(|task| format!("user:{task:04}")).collect();
    for key in keys.iter() {
        let _: () = connection.set(key, "v").await.expect("it is stored");
    }
    Means {
        connection,
        limiter: client.limiter("api", Limit::per_second(PER_SECOND)).expect("valid"),
        breaker: client.breaker("store", BreakerSettings::new()).expect("valid"),
        exact: client
            .breaker("exact", BreakerSettings::new().mode(resil::breaker::CountingMode::Exact))
            .expect("valid"),
        keys,
    }
}

fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
