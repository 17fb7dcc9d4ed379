//! pybreaker on its Redis storage beside `RES.BREAKER` from the same language, by `peers/pybreaker_bench.py`.

use std::path::Path;
use std::process::{Command, Stdio};

use resil_harness::Server;

/// What selects it, as a row's name would.
pub const NAME: &str = "breaker: pybreaker";

const PACKAGES: [&str; 2] = ["pybreaker==1.4.1", "redis==8.1.0"];
const SECONDS: &str = "3";
const SECONDS_QUICK: &str = "1";

/// Prints its table, or why there is none.
pub fn print(quick: bool) {
    println!("\n### Circuit breaker, from Python\n");
    match table(if quick { SECONDS_QUICK } else { SECONDS }) {
        Ok(table) => println!("{}", table.trim_end()),
        Err(reason) => println!("pybreaker was left out: {reason}"),
    }
}

fn table(seconds: &str) -> Result<String, String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let venv = here.join("../target/peers/venv");
    let python = venv.join("bin/python");
    let has_packages = || run(Command::new(&python).args(["-c", "import pybreaker, redis"]));
    if has_packages().is_err() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        run(Command::new(&python).args(install).args(PACKAGES))?;
    }
    let server = Server::fresh();
    let script = here.join("peers/pybreaker_bench.py");
    run(Command::new(&python).arg(script).arg(server.port().to_string()).arg(seconds))
}

/// What the command printed; if it failed, the last line of its complaint.
fn run(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{program} does not start: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(if output.stderr.is_empty() { &output.stdout } else { &output.stderr });
    Err(format!("{program}: {}", said.trim_end().lines().next_back().unwrap_or("it failed")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_its_last_line() {
        let said = run(Command::new("sh").args(["-c", "echo one >&2; echo two >&2; exit 1"]));
        assert_eq!(said, Err("sh: two".to_owned()));
        assert_eq!(run(Command::new("sh").args(["-c", "echo fine"])), Ok("fine\n".to_owned()));
    }
}
