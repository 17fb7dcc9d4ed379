//! What a server executes, counted by callgrind: the same on a busy machine.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::server::Server;

const OUT: &str = "callgrind.out";

/// `program` with `args`, as callgrind starts it. Nothing is counted before [`Server::count`].
pub(crate) fn under_callgrind(program: &Path, args: Vec<String>, folder: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> =
        ["-q", "--tool=callgrind", "--instr-atstart=no", "--trace-children=yes"].map(OsString::from).into();
    let mut out = OsString::from("--callgrind-out-file=");
    out.push(folder.join(OUT));
    words.extend([out, program.into()]);
    words.extend(args.into_iter().map(OsString::from));
    words
}

impl Server {
    /// The instructions that the server takes for `act`, without those of the kernel, and the file that says where they went. The
    /// server was started with `Options::counted`.
    pub fn count(&self, act: impl FnOnce()) -> (u64, PathBuf) {
        self.control_callgrind("--instr=on");
        act();
        self.control_callgrind("--dump");
        self.control_callgrind("--instr=off");
        let dumps = fs::read_dir(self.dir()).into_iter().flatten().flatten();
        let number = |path: &Path| path.to_string_lossy().rsplit_once(&format!("{OUT}."))?.1.parse::<u32>().ok();
        let dump = dumps.map(|entry| entry.path()).max_by_key(|path| number(path));
        let dump = dump.filter(|path| number(path).is_some()).unwrap_or_else(|| self.fail("callgrind wrote nothing"));
        let text = fs::read_to_string(&dump).expect("callgrind writes text");
        let total = text.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok());
        (total.unwrap_or_else(|| self.fail("callgrind counted nothing")), dump)
    }

    fn control_callgrind(&self, what: &str) {
        let output = Command::new("callgrind_control").args([what, &self.pid().to_string()]).output();
        let output = output.unwrap_or_else(|error| self.fail(&format!("callgrind_control does not start: {error}")));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && said.contains("OK."), "callgrind_control {what}: {said}");
    }
}
