//! Programs of `peers/` in other languages: what they need is installed into `target/peers`, where nothing is committed.
//! Whatever is missing, a language or a package, is a reason and not a failure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PYTHON_PACKAGES: [&str; 9] = [
    "cachetools==8.0.0",
    "hiredis==3.5.0",
    "limits==5.8.0",
    "opentelemetry-api==1.45.2",
    "opentelemetry-sdk==1.45.2",
    "pybreaker==1.4.1",
    "redis==8.1.0",
    "stamina==26.1.0",
    "tenacity==9.2.1",
];
const PYTHON_IMPORTS: &str =
    "import cachetools, hiredis, limits, opentelemetry.sdk.trace, pybreaker, redis, stamina, tenacity";

/// A program and the arguments that come before its own.
pub struct Program {
    path: PathBuf,
    script: Option<PathBuf>,
}

impl Program {
    /// What it printed; if it failed, why.
    pub fn run(&self, arguments: &[String]) -> Result<String, String> {
        run(Command::new(&self.path).args(&self.script).args(arguments))
    }
}

/// A script of `peers/`, with Python and the packages.
pub fn python(script: &str) -> Result<Program, String> {
    Ok(Program { path: python_with_packages()?, script: Some(source(script)) })
}

/// A Python that has the packages.
pub fn python_with_packages() -> Result<PathBuf, String> {
    let venv = installed("venv");
    let python = venv.join("bin/python");
    let has_packages = || run(Command::new(&python).args(["-c", PYTHON_IMPORTS]));
    if has_packages().is_err() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        run(Command::new(&python).args(install).args(PYTHON_PACKAGES))?;
    }
    Ok(python)
}

/// `script` in a folder of `peers/` that has a package.json.
pub fn node(folder: &str, script: &str) -> Result<Program, String> {
    let place = node_packages(folder, &["package.json", script])?;
    Ok(Program { path: "node".into(), script: Some(place.join(script)) })
}

/// These files of a folder of `peers/`, in a place where the packages of its package.json are.
pub fn node_packages(folder: &str, files: &[&str]) -> Result<PathBuf, String> {
    let place = copied(folder, files)?;
    run(Command::new("node").arg("--version"))?;
    let quietly = ["install", "--silent", "--no-audit", "--no-fund", "--no-package-lock"];
    run(Command::new("npm").args(quietly).current_dir(&place))?;
    Ok(place)
}

/// What a folder of `peers/` with a go.mod builds.
pub fn go(folder: &str) -> Result<Program, String> {
    let place = copied(folder, &["go.mod", "main.go"])?;
    let build = ["build", "-mod=mod", "-o", folder, "."];
    run(Command::new("go").args(build).current_dir(&place))?;
    Ok(Program { path: place.join(folder), script: None })
}

pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(name)
}

pub fn installed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/peers").join(name)
}

/// The folder of that name under `target/peers`, with the newest of these files.
fn copied(folder: &str, files: &[&str]) -> Result<PathBuf, String> {
    let (from, place) = (source(folder), installed(folder));
    fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    for file in files {
        fs::copy(from.join(file), place.join(file)).map_err(|error| format!("{file}: {error}"))?;
    }
    Ok(place)
}

/// What the command printed; if it failed, the last line of its complaint.
pub fn run(command: &mut Command) -> Result<String, String> {
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
