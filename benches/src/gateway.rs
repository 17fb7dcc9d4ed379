//! What a call through the gateway costs, beside a direct call and beside a proxy that only passes bytes on, in one run.
//!
//! Four processes: this one calls; an upstream echoes; a plain tonic proxy; the gateway. One caller makes each call three ways in turn, so
//! that all of them meet the same noise. Then 32 callers at once, one way after the other. CPU is that of the gateway's or the proxy's process
//! by the kernel's count; times are the caller's.
//!
//! Build the gateway first, with the same profile: `cargo build --release -p resil-gateway`. `CALLS` (5,000) changes how much.
//! Exits with 1 if a bar of the gateway is missed: CPU of one call at most 200 µs, p99 at most 2 ms or three round trips above the direct call.
//! CPU is compared for one caller and for many: with one, every call wakes sleeping threads, also those of the plain proxy.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use resil_gateway::demo::EchoUpstream;
use resil_gateway::proto::resil::example::v1::echo_service_client::EchoServiceClient;
use resil_gateway::proto::resil::example::v1::echo_service_server::{EchoService, EchoServiceServer};
use resil_gateway::proto::resil::example::v1::{EchoManyRequest, EchoManyResponse, EchoRequest, EchoResponse};
use resil_gateway::proto::resil::v1 as proto;
use resil_gateway::proto::resil::v1::resilience_service_client::ResilienceServiceClient;
use resil_harness::{Options, Server};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

const WARM: usize = 500;
const CALLERS: usize = 32;
const CPU_BAR: Duration = Duration::from_micros(200);

/// Passes each call on and decides nothing: what any proxy made of tonic does at least.
struct PlainProxy(EchoServiceClient<Channel>);

#[tonic::async_trait]
impl EchoService for PlainProxy {
    async fn echo(&self, request: Request<EchoRequest>) -> Result<Response<EchoResponse>, Status> {
        self.0.clone().echo(request).await
    }

    type EchoManyStream = tonic::Streaming<EchoManyResponse>;

    async fn echo_many(&self, request: Request<EchoManyRequest>) -> Result<Response<Self::EchoManyStream>, Status> {
        self.0.clone().echo_many(request).await
    }
}

fn channel(address: &str) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    endpoint.tcp_nodelay(true).connect_lazy()
}

async fn serve_proxy(upstream: &str) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    println!("{}", listener.local_addr().expect("an address"));
    let service = EchoServiceServer::new(PlainProxy(EchoServiceClient::new(channel(upstream))));
    let server = tonic::transport::Server::builder().tcp_nodelay(true).add_service(service);
    server.serve_with_incoming(TcpListenerStream::new(listener)).await.expect("it serves");
}

async fn serve_upstream() {
    let stop = tokio_util::sync::CancellationToken::new();
    let echo = EchoUpstream::start(stop.clone()).await.expect("a port");
    println!("{}", echo.address);
    stop.cancelled().await;
}

/// A process that says its address, and ends with this value.
struct Part {
    child: Child,
    address: String,
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Part {
    /// `address` reads it from a line of what the process says.
    fn start(command: &mut Command, is_log: bool, address: impl Fn(&str) -> Option<String>) -> Self {
        let (out, log) = if is_log { (Stdio::null(), Stdio::piped()) } else { (Stdio::piped(), Stdio::inherit()) };
        let child = command.stdout(out).stderr(log).spawn().expect("the program starts");
        let mut part = Self { child, address: String::new() };
        let lines: Box<dyn BufRead + Send> = match (part.child.stdout.take(), part.child.stderr.take()) {
            (Some(out), _) => Box::new(BufReader::new(out)),
            (None, Some(log)) => Box::new(BufReader::new(log)),
            (None, None) => unreachable!("one of them is a pipe"),
        };
        let (send, found) = std::sync::mpsc::channel();
        let lines = lines.lines().map_while(Result::ok);
        // What it says later is read as well, so that it never waits for its log.
        std::thread::spawn(move || lines.for_each(|line| drop(send.send(line))));
        let mut said = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(20);
        while let Ok(line) = found.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            if let Some(address) = address(&line) {
                part.address = address;
                return part;
            }
            said.push(line);
        }
        panic!("it serves: {said:?}");
    }

    fn of_this_program(args: &[&str]) -> Self {
        let own = std::env::current_exe().expect("this program");
        Self::start(Command::new(own).args(args), false, |line| Some(line.to_owned()))
    }

    fn gateway(config: &std::path::Path, redis_url: &str) -> Self {
        let path = std::env::current_exe().expect("this program").with_file_name("resil-gateway");
        assert!(path.exists(), "build it first: cargo build --release -p resil-gateway");
        let mut command = Command::new(path);
        command.args(["serve", "--config"]).arg(config).env("REDIS_URL", redis_url).env("LOG_LEVEL", "info");
        command.env("RESILIENCE_PORT", "0").env("RESILIENCE_HTTP_PORT", "0").env_remove("OTEL_EXPORTER_OTLP_ENDPOINT");
        Self::start(&mut command, true, |line| {
            let event: serde_json::Value = serde_json::from_str(line).ok()?;
            (event["message"] == "the gateway serves").then(|| event["grpc"].as_str().map(str::to_owned))?
        })
    }

    /// What it has used of the processors, by the kernel's count: ticks of 10 ms.
    fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("it runs");
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: u64 = [11, 12].iter().filter_map(|at| fields[*at].parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 10)
    }
}

/// One way to make the call.
#[derive(Clone)]
enum Way {
    Echo(EchoServiceClient<Channel>),
    Gateway(ResilienceServiceClient<Channel>, Box<proto::ExecuteWithResilienceRequest>),
}

impl Way {
    fn gateway(part: &Part, upstream: &str, request: &EchoRequest) -> Self {
        let call = proto::GrpcCall {
            method: "resil.example.v1.EchoService/Echo".into(),
            message: prost::Message::encode_to_vec(request).into(),
        };
        let request = proto::ExecuteWithResilienceRequest {
            upstream: upstream.into(),
            call: Some(proto::execute_with_resilience_request::Call::Grpc(call)),
            ..Default::default()
        };
        Self::Gateway(ResilienceServiceClient::new(channel(&part.address)), Box::new(request))
    }

    async fn call(&mut self, request: &EchoRequest) -> Duration {
        let begun = Instant::now();
        match self {
            Self::Echo(client) => drop(client.echo(request.clone()).await.expect("a reply")),
            Self::Gateway(client, call) => {
                drop(
                    client
                        .execute_with_resilience(proto::ExecuteWithResilienceRequest::clone(call))
                        .await
                        .expect("a reply"),
                );
            }
        }
        begun.elapsed()
    }
}

fn quantiles(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort();
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

fn us(span: Duration) -> String {
    format!("{:.0}", span.as_secs_f64() * 1e6)
}

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["proxy", upstream] => serve_proxy(upstream).await,
        ["upstream"] => serve_upstream().await,
        _ => return measure().await,
    }
    ExitCode::SUCCESS
}

async fn measure() -> ExitCode {
    let calls: usize = std::env::var("CALLS").ok().and_then(|text| text.parse().ok()).unwrap_or(5_000);
    let server = Server::start(Options::default().measured());
    let store = resil::ConnectSettings::new(server.url()).require_server().connect().await.expect("the server");
    let whole = r#"{"retry": {"maxAttempts": 3}, "timeout": {"attempt": "1s", "total": "3s"}, "breaker": {},
        "rateLimit": {"limit": 1000000, "period": "1s"}}"#;
    store.policies().set("whole", whole).await.expect("valid");
    store.policies().set("local", r#"{"retry": {"maxAttempts": 3}, "timeout": {"total": "3s"}}"#).await.expect("valid");
    let upstream = Part::of_this_program(&["upstream"]);
    let proxy = Part::of_this_program(&["proxy", &upstream.address]);
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("gateway.yaml");
    let address = &upstream.address;
    let text = format!(
        "upstreams:\n  whole: {{ kind: grpc, address: \"http://{address}\", policy: whole }}\n  local: {{ kind: grpc, address: \"http://{address}\", policy: local }}\n"
    );
    std::fs::write(&config, text).expect("a file");
    // A gateway for each policy, so that the CPU of each is known.
    let gateways = [Part::gateway(&config, &server.url()), Part::gateway(&config, &server.url())];
    let request = EchoRequest { text: "x".repeat(100), ..Default::default() };
    let names =
        ["direct", "plain tonic proxy", "gateway, retry and timeout", "gateway, breaker, limit, retry and timeout"];
    let mut ways = [
        Way::Echo(EchoServiceClient::new(channel(&upstream.address))),
        Way::Echo(EchoServiceClient::new(channel(&proxy.address))),
        Way::gateway(&gateways[0], "local", &request),
        Way::gateway(&gateways[1], "whole", &request),
    ];
    let parts = [None, Some(&proxy), Some(&gateways[0]), Some(&gateways[1])];
    let cpu = || parts.map(|part| part.map_or(Duration::ZERO, Part::cpu));
    let (mut times, mut round_trips, mut before) = ([const { Vec::new() }; 4], Vec::new(), cpu());
    for number in 0..calls + WARM {
        if number == WARM {
            (times, round_trips, before) = ([const { Vec::new() }; 4], Vec::new(), cpu());
        }
        for (way, times) in ways.iter_mut().zip(&mut times) {
            times.push(way.call(&request).await);
        }
        let begun = Instant::now();
        store.operator().time().await.expect("the server");
        round_trips.push(begun.elapsed());
    }
    let used = cpu();
    let round_trip = quantiles(round_trips);
    let times = times.map(quantiles);
    println!("| one caller, {calls} calls | p50 us | p99 us | p99 over direct, us | CPU of its process, us per call |");
    println!("| --- | ---: | ---: | ---: | ---: |");
    let mut costs = [Duration::ZERO; 4];
    for at in 0..4 {
        costs[at] = (used[at] - before[at]) / u32::try_from(calls).expect("few");
        let (p50, p99) = times[at];
        let over = us(p99.saturating_sub(times[0].1));
        let cost = if at == 0 { String::new() } else { us(costs[at]) };
        println!("| {} | {} | {} | {over} | {cost} |", names[at], us(p50), us(p99));
    }
    println!("| a round trip to Redis | {} | {} | | |", us(round_trip.0), us(round_trip.1));
    println!();
    println!("| {CALLERS} callers at once | calls/s | p50 us | p99 us | CPU of its process, us per call |");
    println!("| --- | ---: | ---: | ---: | ---: |");
    let mut busy = Duration::ZERO;
    for at in 0..4 {
        let (before, begun) = (cpu()[at], Instant::now());
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..CALLERS {
            let (mut way, request, own) = (ways[at].clone(), request.clone(), calls / CALLERS);
            callers.spawn(async move {
                let mut times = Vec::with_capacity(own);
                for _ in 0..own {
                    times.push(way.call(&request).await);
                }
                times
            });
        }
        let times: Vec<Duration> = callers.join_all().await.concat();
        let (made, wall) = (times.len(), begun.elapsed());
        busy = (cpu()[at] - before) / u32::try_from(made).expect("few");
        let cost = if at == 0 { String::new() } else { us(busy) };
        let (p50, p99) = quantiles(times);
        println!("| {} | {:.0} | {} | {} | {cost} |", names[at], made as f64 / wall.as_secs_f64(), us(p50), us(p99));
    }
    let most = Duration::from_millis(2).max(round_trip.0 * 3);
    let over = times[3].1.saturating_sub(times[0].1);
    let bars = [
        ("CPU of a call, one caller", costs[3], CPU_BAR),
        ("CPU of a call, many callers", busy, CPU_BAR),
        ("p99 over the direct call", over, most),
    ];
    println!();
    for (name, is, bar) in bars {
        println!("{name}: {} us of {} us, {}", us(is), us(bar), if is <= bar { "holds" } else { "MISSED" });
    }
    ExitCode::from(u8::from(bars.iter().any(|(_, is, bar)| is > bar)))
}
