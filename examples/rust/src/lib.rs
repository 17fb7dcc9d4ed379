//! What the examples have in common: where they run, and as how many processes.
//!
//! Each example is one file that can be read from the top, `cargo run -p resil-examples --bin <name>`. It needs no set-up: without an
//! argument it runs on `memory://`, the same state machines inside the program. With a URL (`make run` starts a server
//! on `redis://127.0.0.1:6379`), or with one in `RESIL_URL`, it runs there.

use resil::{Client, ConnectSettings};

/// Whatever went wrong, for people to read.
pub type Problem = Box<dyn std::error::Error + Send + Sync>;

/// The first argument, or else `RESIL_URL`, or else `memory://`.
pub fn url() -> String {
    std::env::args().nth(1).or_else(|| std::env::var("RESIL_URL").ok()).unwrap_or_else(|| "memory://".to_owned())
}

/// A client as a process called `process` would have it. Plain `memory://` would be a store of its own for each; one that has a
/// name is shared by all in this program, so the example gives it its own.
pub async fn connect(url: &str, example: &str, process: &str) -> Result<Client, resil::Error> {
    let url = if url == "memory://" { format!("memory://{example}") } else { url.to_owned() };
    ConnectSettings::new(url).name(process).connect().await
}
