//! Which server program, and which module file.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const DEFAULT_FLAVOR: &str = "redis-7.0";

/// A server program one can start. `scripts/servers` puts them in `target/servers/<name>/bin/server`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flavor {
    name: String,
    program: PathBuf,
}

/// Every server in `target/servers`, by name.
pub fn flavors() -> Vec<Flavor> {
    let entries = fs::read_dir(servers_dir()).into_iter().flatten().flatten();
    let mut found: Vec<Flavor> =
        entries.filter_map(|entry| Flavor::find(&entry.file_name().to_string_lossy())).collect();
    found.sort_by(|left, right| left.name.cmp(&right.name));
    found
}

impl Flavor {
    /// The one `RESIL_SERVER` names; without it redis-7.0, or else the `redis-server` of this machine.
    pub fn from_env() -> Self {
        if let Ok(name) = env::var("RESIL_SERVER") {
            return Self::named(&name);
        }
        Self::find(DEFAULT_FLAVOR).or_else(Self::on_path).unwrap_or_else(|| {
            panic!(
                "no server in {} and no redis-server on the PATH: run `scripts/setup` first",
                servers_dir().display()
            )
        })
    }

    /// The one of this name in `target/servers`.
    pub fn named(name: &str) -> Self {
        Self::find(name).unwrap_or_else(|| {
            let known: Vec<String> = flavors().into_iter().map(|flavor| flavor.name).collect();
            panic!(
                "no server {name:?} in {} (there is {known:?}): run `scripts/servers {name}` first",
                servers_dir().display()
            )
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes redis-server's arguments; the process it starts in is the server's own.
    pub fn program(&self) -> &Path {
        &self.program
    }

    pub fn is_valkey(&self) -> bool {
        self.describe_itself().starts_with("Valkey")
    }

    /// The server's own version (of Valkey, not the Redis version it is compatible with): major, minor, patch.
    pub fn version(&self) -> (u32, u32, u32) {
        let text = self.describe_itself();
        let numbers = text.split_once(" v=").and_then(|(_, rest)| rest.split_whitespace().next()).unwrap_or_default();
        let mut parts = numbers.split('.').map(|part| part.parse().unwrap_or(0));
        let mut next = || parts.next().unwrap_or(0);
        (next(), next(), next())
    }

    /// `Redis server v=7.0.15 sha=… malloc=… bits=64 build=…`
    fn describe_itself(&self) -> String {
        let output = Command::new(&self.program).arg("--version").output();
        let output = output.unwrap_or_else(|error| panic!("{} does not run: {error}", self.program.display()));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn find(name: &str) -> Option<Self> {
        let program = servers_dir().join(name).join("bin/server");
        program.is_file().then(|| Self { name: name.to_owned(), program })
    }

    fn on_path() -> Option<Self> {
        let folders = env::var_os("PATH")?;
        let program =
            env::split_paths(&folders).map(|folder| folder.join("redis-server")).find(|path| path.is_file())?;
        Some(Self { name: "redis-server".to_owned(), program })
    }
}

/// The module under test: `RESIL_MODULE`, else what `make module` leaves behind.
pub fn module_path() -> PathBuf {
    let path = match env::var_os("RESIL_MODULE") {
        Some(path) => PathBuf::from(path),
        None => {
            let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
            let file = format!("{}resil{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
            // `join` keeps an absolute CARGO_TARGET_DIR as it is.
            workspace_dir().join(target).join("release").join(file)
        }
    };
    // A server changes its working folder before it opens the file.
    path.canonicalize().unwrap_or_else(|error| {
        panic!("the module {} cannot be opened ({error}): run `make module` first, or set RESIL_MODULE", path.display())
    })
}

fn servers_dir() -> PathBuf {
    env::var_os("RESIL_SERVERS_DIR").map_or_else(|| workspace_dir().join("target/servers"), PathBuf::from)
}

fn workspace_dir() -> &'static Path {
    let harness = Path::new(env!("CARGO_MANIFEST_DIR"));
    harness.ancestors().nth(2).expect("the harness lives two folders below the workspace")
}
