//! What a server is started with.

use std::path::PathBuf;

use crate::flavor::{Flavor, module_path};

/// Defaults that make a server quick and quiet: no persistence, replication without delay, nothing forbidden.
const BASE_CONFIG: &str = r#"bind 127.0.0.1
protected-mode no
daemonize no
loglevel notice
save ""
appendonly no
enable-debug-command yes
enable-module-command yes
repl-diskless-sync-delay 0
repl-ping-replica-period 1
"#;

/// How quickly cluster nodes give each other up. Their default of 15 s is longer than a test should wait.
const CLUSTER_NODE_TIMEOUT_MS: u32 = 5000;

/// The wishes of a test; `Options::default()` is the flavor of the environment with the module loaded.
#[derive(Clone, Debug, Default)]
pub struct Options {
    flavor: Option<Flavor>,
    module: Module,
    module_args: Vec<String>,
    more_modules: Vec<(PathBuf, Vec<String>)>,
    config: Vec<(String, String)>,
    pub(crate) dir: Option<PathBuf>,
    pub(crate) is_cluster: bool,
    pub(crate) is_under_valgrind: bool,
    pub(crate) is_measured: bool,
    pub(crate) is_counted: bool,
}

#[derive(Clone, Debug, Default)]
enum Module {
    /// Looked for when the server starts, so that a test without it needs no build.
    #[default]
    UnderTest,
    At(PathBuf),
    None,
}

impl Options {
    /// This server instead of the one `RESIL_SERVER` names.
    pub fn flavor(mut self, flavor: Flavor) -> Self {
        self.flavor = Some(flavor);
        self
    }

    /// One more argument for the module, as after `loadmodule path`.
    pub fn module_arg(mut self, arg: impl Into<String>) -> Self {
        self.module_args.push(arg.into());
        self
    }

    pub fn module_args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.module_args.extend(args.into_iter().map(Into::into));
        self
    }

    /// A plain server.
    pub fn without_module(mut self) -> Self {
        self.module = Module::None;
        self
    }

    /// Another build of the module: an older release, say.
    pub fn module_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.module = Module::At(path.into());
        self
    }

    /// A further module beside ours.
    pub fn also_load<A: Into<String>>(mut self, path: impl Into<PathBuf>, args: impl IntoIterator<Item = A>) -> Self {
        self.more_modules.push((path.into(), args.into_iter().map(Into::into).collect()));
        self
    }

    /// One more line of redis.conf. The value is written as it is: several words are several arguments, and
    /// quotes are the caller's. A later line wins over an earlier one.
    pub fn config(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.config.push((name.into(), value.into()));
        self
    }

    /// Starts on this folder and its data, and leaves the folder behind.
    pub fn dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.dir = Some(path.into());
        self
    }

    /// A node of a cluster that knows no other yet. `Cluster::start` makes a whole one.
    pub fn cluster(mut self) -> Self {
        self.is_cluster = true;
        self
    }

    /// Leaves freed memory unfilled: for measurements.
    pub fn measured(mut self) -> Self {
        self.is_measured = true;
        self
    }

    /// Checks every access to memory, about thirty times slower. An error fails the test when the server is dropped.
    ///
    /// Snapshots are not compressed: the server's compressor reads its hash table before it writes it, on purpose.
    pub fn under_valgrind(mut self) -> Self {
        self.is_under_valgrind = true;
        self.config("rdbcompression", "no")
    }

    /// Counts instructions (`Server::count`), about fifty times slower.
    pub fn counted(mut self) -> Self {
        self.is_counted = true;
        self.measured()
    }

    pub(crate) fn chosen_flavor(&self) -> Flavor {
        self.flavor.clone().unwrap_or_else(Flavor::from_env)
    }

    /// The configuration file, but for what belongs to one start: ports and folder.
    pub(crate) fn config_text(&self) -> String {
        let mut text = BASE_CONFIG.to_owned();
        if self.is_cluster {
            text += &format!("cluster-enabled yes\ncluster-node-timeout {CLUSTER_NODE_TIMEOUT_MS}\n");
        }
        let ours = match &self.module {
            Module::UnderTest => Some(module_path()),
            Module::At(path) => Some(path.clone()),
            Module::None => None,
        };
        if let Some(path) = ours {
            text += &load_line(&path.to_string_lossy(), &self.module_args);
        }
        for (path, args) in &self.more_modules {
            text += &load_line(&path.to_string_lossy(), args);
        }
        for (name, value) in &self.config {
            text += &format!("{name} {value}\n");
        }
        text
    }
}

fn load_line(path: &str, args: &[String]) -> String {
    let words: Vec<String> = std::iter::once(path).chain(args.iter().map(String::as_str)).map(quoted).collect();
    format!("loadmodule {}\n", words.join(" "))
}

/// A word as redis.conf reads it back unchanged, whatever is in it.
pub(crate) fn quoted(word: &str) -> String {
    let mut text = String::from("\"");
    for byte in word.bytes() {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => text += &format!("\\x{byte:02x}"),
        }
    }
    text + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_keeps_its_spaces_quotes_and_bytes() {
        assert_eq!(quoted(r#"a "b" \c"#), r#""a \"b\" \\c""#);
        assert_eq!(quoted("é\n"), r#""\xc3\xa9\x0a""#);
    }

    #[test]
    fn without_module_no_module_is_looked_for() {
        assert!(!Options::default().without_module().config_text().contains("loadmodule"));
    }

    #[test]
    fn module_arguments_follow_the_path_on_one_line() {
        let options = Options::default().module_path("/m.so").module_args(["a", "b c"]);
        assert!(options.config_text().contains("loadmodule \"/m.so\" \"a\" \"b c\"\n"));
    }
}
