//! `resil bench`: a quick load of one command through the SDK, and how long calls took. It ends by its time, and leaves keys under the
//! name `resil-bench`, which expire.

use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;
use resil::breaker::BreakerSettings;
use resil::limiter::Limit;
use resil::lock::LockSettings;
use serde_json::json;

use crate::connect::ConnectArgs;
use crate::failure::Failure;
use crate::output::{Cell, Output};
use crate::spans;

/// The longest run: it is a glance, not a load test.
const LONGEST: Duration = Duration::from_secs(300);
const NAME: &str = "resil-bench";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Load {
    /// One decision of a limit
    Limit,
    /// ADMIT and REPORT of a breaker
    Breaker,
    /// A lock, taken and released
    Lock,
    /// The state of a breaker
    State,
}

#[derive(Args)]
pub struct BenchArgs {
    what: Load,
    /// For how long, 5m at most
    #[arg(long = "for", value_name = "DURATION", value_parser = spans::read, default_value = "3s")]
    length: Duration,
    /// Calls that are under way at once, 1 to 1,000
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    concurrency: u32,
    /// Keys that calls are spread over
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    keys: u32,
}

struct Runner {
    client: resil::Client,
    what: Load,
    until: Instant,
    keys: u32,
}

impl Runner {
    async fn call(&self, number: u32) -> Result<(), resil::Error> {
        let name = format!("{NAME}-{}", number % self.keys);
        match self.what {
            Load::Limit => {
                let limit = self.client.limiter(NAME, Limit::per_second(1_000_000))?;
                limit.check(&name).await.map(drop)
            }
            Load::Breaker => {
                let permit = self.client.breaker(&name, BreakerSettings::new())?.admit().await?;
                permit.success().await;
                Ok(())
            }
            Load::Lock => self.client.lock(&name, LockSettings::new())?.acquire().await?.release().await.map(drop),
            Load::State => {
                let key = resil::operator::KeyKind::Breaker.key(&name)?;
                self.client.operator().breaker(&key).await.map(drop)
            }
        }
    }

    async fn run(&self, worker: u32) -> Result<(Histogram<u64>, u64), Failure> {
        let mut took = Histogram::new(3).map_err(|error| Failure::Refused(error.to_string()))?;
        let (mut errors, mut number) = (0, worker);
        while Instant::now() < self.until {
            let began = Instant::now();
            match self.call(number).await {
                Ok(()) => took.saturating_record(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX)),
                Err(error) if took.is_empty() && errors == 0 => return Err(error.into()),
                Err(_) => {
                    errors += 1;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            number = number.wrapping_add(1);
        }
        Ok((took, errors))
    }
}

pub async fn run(connect: &ConnectArgs, output: &Output, args: &BenchArgs) -> Result<(), Failure> {
    if args.length.is_zero() || args.length > LONGEST {
        return Err(Failure::Usage(format!("--for must be from 1ms to {}", spans::shown(LONGEST))));
    }
    let client = connect.client().await?;
    let began = Instant::now();
    let runner = std::sync::Arc::new(Runner { client, what: args.what, until: began + args.length, keys: args.keys });
    let workers: Vec<_> = (0..args.concurrency)
        .map(|worker| {
            let runner = runner.clone();
            tokio::spawn(async move { runner.run(worker * 7_919).await })
        })
        .collect();
    let mut all = Histogram::<u64>::new(3).map_err(|error| Failure::Refused(error.to_string()))?;
    let mut errors = 0;
    for worker in workers {
        let (took, failed) = worker.await.map_err(|error| Failure::Refused(error.to_string()))??;
        all.add(took).map_err(|error| Failure::Refused(error.to_string()))?;
        errors += failed;
    }
    let seconds = began.elapsed().as_secs_f64();
    let rate = all.len() as f64 / seconds;
    let at = |quantile: f64| all.value_at_quantile(quantile);
    let us = |us: u64| Cell::new(format!("{:.3} ms", us as f64 / 1_000.0));
    let what = args.what.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let value = || {
        json!({ "what": what, "seconds": seconds, "concurrency": args.concurrency, "calls": all.len(), "errors": errors,
            "callsPerSecond": rate, "p50Us": at(0.5), "p99Us": at(0.99), "maxUs": all.max() })
    };
    let lines = [
        ("calls", Cell::new(format!("{} of {what} in {seconds:.1} s, {} at once", all.len(), args.concurrency))),
        ("rate", Cell::new(format!("{rate:.0} in a second"))),
        ("errors", Cell::new(errors.to_string())),
        ("p50", us(at(0.5))),
        ("p99", us(at(0.99))),
        ("max", us(all.max())),
    ];
    output.thing(value, &lines)
}
