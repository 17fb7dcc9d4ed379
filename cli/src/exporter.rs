//! `resil exporter`: `/metrics` for Prometheus, made when it is asked for, of INFO, RES.LIST and RES.TOP.
//!
//! # What holds
//! - A scrape ends in time: within `--scrape-timeout`, and a little before the timeout that Prometheus names. Then, and while the server is
//!   away, it is a page with `resil_up 0`.
//! - Labels are bounded: names of breakers and ledgers, at most [`metrics::NAMED_MAX`] of each, the worst first. Keys of limits and locks
//!   are often made of ids of people: they are exported only with `--keys`.
//! - It serves one page to anybody who can connect, so it listens on 127.0.0.1 unless it is told otherwise.

mod metrics;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;
use axum::routing::get;
use clap::Args;
use resil::operator::KeyKind;
use resil::{Client, Error};

use self::metrics::Page;
use crate::connect::ConnectArgs;
use crate::failure::Failure;
use crate::overview::{denied, list_all};
use crate::spans;

/// Rows that one scrape looks at.
const ROWS_MAX: usize = 10_000;
const RANKED_MAX: usize = 20;
/// What is left of Prometheus' own timeout for the way back.
const MARGIN: Duration = Duration::from_millis(200);

#[derive(Args)]
pub struct ExporterArgs {
    /// Where to listen; port 0 is any free port, which is printed
    #[arg(long, default_value = "127.0.0.1:9151")]
    listen: SocketAddr,
    /// The longest that a scrape takes
    #[arg(long, value_name = "DURATION", value_parser = spans::read, default_value = "5s")]
    scrape_timeout: Duration,
    /// Also exports keys of locks and of what is refused most, which may be made of ids of people
    #[arg(long)]
    keys: bool,
}

struct Exporter {
    client: Client,
    timeout: Duration,
    has_keys: bool,
}

pub async fn run(connect: &ConnectArgs, args: &ExporterArgs) -> Result<(), Failure> {
    let client = connect.patient_client().await?;
    let exporter = Arc::new(Exporter { client, timeout: args.scrape_timeout, has_keys: args.keys });
    let listener = tokio::net::TcpListener::bind(args.listen)
        .await
        .map_err(|error| Failure::Usage(format!("--listen {}: {error}", args.listen)))?;
    eprintln!("resil: metrics on http://{}/metrics", listener.local_addr()?);
    let app = Router::new().route("/metrics", get(scrape)).route("/healthz", get(async || "ok\n")).with_state(exporter);
    axum::serve(listener, app).with_graceful_shutdown(stopped()).await?;
    Ok(())
}

async fn stopped() {
    let terminated = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => drop(signal.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminated => {}
    }
}

async fn scrape(State(exporter): State<Arc<Exporter>>, headers: HeaderMap) -> impl IntoResponse {
    let named = headers.get("x-prometheus-scrape-timeout-seconds").and_then(|value| value.to_str().ok()?.parse().ok());
    let named = named.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let bound = named.map_or(exporter.timeout, |named| named.saturating_sub(MARGIN).min(exporter.timeout));
    let began = Instant::now();
    let mut page = match tokio::time::timeout(bound, exporter.collect()).await {
        Ok(Ok(page)) => page,
        // Half a page would look like counters that vanish.
        Ok(Err(_)) | Err(_) => Page::away(),
    };
    page.took(began.elapsed());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page.text())
}

impl Exporter {
    async fn collect(&self) -> Result<Page, Error> {
        let client = &self.client;
        let mut page = Page::here();
        for info in client.operator().info("resil").await? {
            page.info(&info);
        }
        page.breakers(&list_all(client, KeyKind::Breaker, ROWS_MAX).await?);
        page.locks(&list_all(client, KeyKind::Lock, ROWS_MAX).await?, self.has_keys);
        page.bulkheads(&list_all(client, KeyKind::Bulkhead, ROWS_MAX).await?);
        page.ledgers(&list_all(client, KeyKind::DeadLetters, ROWS_MAX).await?);
        page.denied(&denied(client, RANKED_MAX).await?, self.has_keys);
        Ok(page)
    }
}
