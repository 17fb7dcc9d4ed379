//! The program: `resil-gateway serve`, `check` and `demo`.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use resil_gateway::config::{Config, ConfigError, Environment};
use resil_gateway::telemetry::Telemetry;
use resil_gateway::{demo, run};

#[derive(Parser)]
#[command(
    name = "resil-gateway",
    version,
    about = "Calls under a policy for services that link no library, and a dashboard"
)]
struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    serve: ConfigArgs,
}

#[derive(Args, Clone, Default)]
struct ConfigArgs {
    /// The configuration, YAML; also RESILIENCE_CONFIG
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Verb {
    /// Serve until SIGTERM (the default)
    Serve(ConfigArgs),
    /// Say what is wrong with a configuration, and open nothing
    Check(ConfigArgs),
    /// All of it in one process: memory://, two upstreams, some traffic
    Demo {
        /// The port of the dashboard; 0: any
        #[arg(long, default_value_t = 8_056)]
        http_port: u16,
        #[arg(long, default_value_t = 50_056)]
        grpc_port: u16,
    },
}

fn read(args: &ConfigArgs) -> Result<(Config, Vec<String>), ConfigError> {
    let environment = Environment::of_process();
    let path = args.config.clone().or_else(|| environment.get("RESILIENCE_CONFIG").map(PathBuf::from));
    Config::read(path.as_deref(), &environment)
}

async fn stopped() {
    let mut terminated = match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        Ok(terminated) => terminated,
        Err(_) => return drop(tokio::signal::ctrl_c().await),
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated.recv() => {}
    }
}

async fn serve(args: &ConfigArgs) -> Result<ExitCode, String> {
    let (config, warnings) = read(args).map_err(|error| format!("configuration: {error}"))?;
    let instance = config.instance.clone().unwrap_or_default();
    let telemetry =
        Telemetry::start(&config.telemetry, &instance).map_err(|error| format!("configuration: {error}"))?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let running = run::start(config).await.map_err(|error| error.to_string())?;
    if telemetry.has_metrics() {
        resil_gateway::metrics::export(&running.gateway);
    }
    stopped().await;
    // An orchestrator may say it twice; only a person who presses Ctrl-C does not want to wait.
    let hurry = async { drop(tokio::signal::ctrl_c().await) };
    let cut_off = running.end_or(hurry).await;
    // Sending the last spans blocks.
    let _ = tokio::task::spawn_blocking(move || telemetry.end()).await;
    Ok(if cut_off == 0 { ExitCode::SUCCESS } else { ExitCode::from(3) })
}

async fn act(cli: Cli) -> Result<ExitCode, String> {
    match cli.verb {
        None => serve(&cli.serve).await,
        Some(Verb::Serve(args)) => serve(&args).await,
        Some(Verb::Check(args)) => {
            let (_, warnings) = read(&args).map_err(|error| format!("configuration: {error}"))?;
            for warning in warnings {
                eprintln!("resil-gateway: warning: {warning}");
            }
            println!("the configuration is valid");
            Ok(ExitCode::SUCCESS)
        }
        Some(Verb::Demo { http_port, grpc_port }) => {
            let demo = demo::start(grpc_port, http_port).await.map_err(|error| error.to_string())?;
            println!("dashboard: http://{}/", demo.running.http_address);
            println!("gRPC:      {} (reflection is on)", demo.running.grpc_address);
            println!("Ctrl-C stops it");
            stopped().await;
            demo.end().await;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("resil-gateway: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(act(cli)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("resil-gateway: {error}");
            ExitCode::from(2)
        }
    }
}
