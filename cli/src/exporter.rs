//! `resil exporter`: `/metrics` for Prometheus, made when it is asked for, of INFO, RES.LIST and RES.TOP.
//!
//! # What holds
//! - A scrape ends in time: within `--scrape-timeout`, and a little before the timeout that Prometheus names. Then, and while the server is
//!   away, it is a page with `resil_up 0`. Standard error says why, once for each reason.
//! - A node of a cluster that is away takes nothing from the page but its own: `resil_node_up` says so, and counters have the label `node`,
//!   so that none of them goes back.
//! - However many scrape at once, the server is asked by one after the other, and scrapes that wait for the same look share it: a page is
//!   never older than the request for it.
//! - It ends within [`GRACE`] of a signal, whatever its clients do.
//! - Labels are bounded: names of breakers and ledgers, at most [`metrics::NAMED_MAX`] of each, the worst first. Keys of limits and locks
//!   are often made of ids of people: they are exported only with `--keys`.
//! - It serves one page to anybody who can connect, so it listens on 127.0.0.1 by default.

mod help;
mod metrics;

use std::future::IntoFuture;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
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
use crate::failure::{Failure, SERVER};
use crate::output::escaped;
use crate::overview::{away, denied, list_all};
use crate::spans;

/// Rows that one scrape looks at.
const ROWS_MAX: usize = 10_000;
const RANKED_MAX: usize = 20;
/// What requests may still take after a signal.
const GRACE: Duration = Duration::from_secs(2);
/// What is left of Prometheus' own timeout for the way back.
const MARGIN: Duration = Duration::from_millis(200);

#[derive(Args)]
pub struct ExporterArgs {
    /// Where to listen; port 0 is any free port, which is printed
    #[arg(long, default_value = "127.0.0.1:9151")]
    listen: SocketAddr,
    /// The longest that a scrape takes
    #[arg(long, value_name = "DURATION", value_parser = spans::above_zero, default_value = "5s")]
    scrape_timeout: Duration,
    /// Also exports keys of locks and of what is refused most, which may be made of ids of people
    #[arg(long)]
    keys: bool,
}

struct Exporter {
    client: Client,
    timeout: Duration,
    has_keys: bool,
    /// The last page, and when its look began.
    last: tokio::sync::Mutex<Option<(Instant, Page)>>,
    /// What the last look was without.
    lost: Mutex<Option<String>>,
    /// Why the last scrape failed, or what it was without.
    trouble: Mutex<Option<String>>,
}

pub async fn run(connect: &ConnectArgs, args: &ExporterArgs) -> Result<(), Failure> {
    let client = connect.patient_client().await?;
    let exporter = Arc::new(Exporter {
        client,
        timeout: args.scrape_timeout,
        has_keys: args.keys,
        last: tokio::sync::Mutex::new(None),
        lost: Mutex::new(None),
        trouble: Mutex::new(None),
    });
    let listener = tokio::net::TcpListener::bind(args.listen)
        .await
        .map_err(|error| Failure::Usage(format!("--listen {}: {error}", args.listen)))?;
    say(&format!("metrics on http://{}/metrics", listener.local_addr()?));
    let app = Router::new().route("/metrics", get(scrape)).route("/healthz", get(async || "ok\n")).with_state(exporter);
    let (stop, is_stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = axum::serve(listener, app).with_graceful_shutdown(async { drop(is_stopped.await) });
    let ending = async {
        stopped().await;
        drop(stop);
        // A client that sends half a request must not keep the process.
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        served = serving.into_future() => served?,
        () = ending => {}
    }
    Ok(())
}

/// A line on standard error, which may be closed. The text is safe already.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "resil: {text}");
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
    let mut page = match tokio::time::timeout(bound, exporter.page_of(began)).await {
        Ok(Ok(page)) => {
            let lost = exporter.lost.lock().unwrap_or_else(PoisonError::into_inner).clone();
            exporter.had(lost.map(|lost| format!("without a part: {lost}")));
            page
        }
        // Half a page would look like counters that vanish.
        Ok(Err(error)) => {
            let server = SERVER.get().map_or("", String::as_str);
            exporter.had(Some(format!("resil_up is 0: {server}: {error}")));
            Page::away()
        }
        Err(_) => {
            exporter.had(Some(format!("resil_up is 0: the server took longer than {}", spans::shown(bound))));
            Page::away()
        }
    };
    page.took(began.elapsed());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page.text())
}

impl Exporter {
    /// A page whose look began at `asked` or later: this scrape's own, or one that waited for the same turn.
    async fn page_of(&self, asked: Instant) -> Result<Page, Error> {
        let mut last = self.last.lock().await;
        if let Some((began, page)) = &*last
            && *began >= asked
        {
            return Ok(page.clone());
        }
        let began = Instant::now();
        let page = self.collect().await?;
        *last = Some((began, page.clone()));
        Ok(page)
    }

    /// Says on standard error why scrapes fail, and that they do not any more.
    fn had(&self, trouble: Option<String>) {
        let mut last = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if *last == trouble {
            return;
        }
        match &trouble {
            Some(text) => say(&escaped(text.as_bytes())),
            None => say("resil_up is 1 again, with all there is"),
        }
        *last = trouble;
    }

    async fn collect(&self) -> Result<Page, Error> {
        let operator = &self.client.operator().without_lost_nodes();
        let mut page = Page::here();
        let infos = operator.info_by_node("resil").await?;
        for (node, info) in &infos {
            page.info(node.as_deref(), info);
        }
        let breakers = list_all(operator, KeyKind::Breaker, ROWS_MAX).await?;
        page.breakers(&breakers, breakers.len() < ROWS_MAX);
        page.locks(&list_all(operator, KeyKind::Lock, ROWS_MAX).await?, self.has_keys);
        page.bulkheads(&list_all(operator, KeyKind::Bulkhead, ROWS_MAX).await?);
        page.ledgers(&list_all(operator, KeyKind::DeadLetters, ROWS_MAX).await?);
        page.denied(&denied(operator, RANKED_MAX).await?, self.has_keys);
        let lost = operator.lost_nodes();
        let is_lost = |node: &str| lost.iter().any(|(address, _)| address == node);
        let here = infos.iter().filter_map(|(node, _)| node.as_deref()).filter(|node| !is_lost(node));
        page.nodes(here, lost.iter().map(|(address, _)| address.as_str()));
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = (!lost.is_empty()).then(|| away(&lost));
        Ok(page)
    }
}
