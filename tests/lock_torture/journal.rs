//! What everybody heard, and when: one file for each thread of each client, and one for the killer.
//!
//! A line is written in one go, past every buffer of the process, so that a killed process has said all it knew. Times
//! are microseconds of CLOCK_MONOTONIC, which all processes of a machine share.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

/// Which thread of which client process; a process that is started again has another number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Who {
    pub process: u32,
    pub thread: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Acquire,
    Renew,
    Release,
    Check,
    Break,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    Exclusive,
    Shared,
    /// One of so many.
    Permit(i64),
}

/// A call as it is sent. `bound`: the grant hangs on the connection it is asked on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub verb: Verb,
    pub key: String,
    pub owner: String,
    pub claim: Claim,
    pub lease_ms: i64,
    pub wait_ms: i64,
    pub bound: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A new connection is there.
    Connected,
    /// About to be sent.
    Asked(Asked),
    /// The reply to the call before: its verdict, and the numbers of a grant (the fence is 0 where there is none).
    Answered {
        verdict: String,
        fence: u64,
        lease_ms: i64,
        waited_ms: i64,
        active: i64,
    },
    /// No reply: the connection is closed, or patience is over.
    Unanswered {
        closed: bool,
    },
    /// About to cut the connection.
    Cut,
    /// Of the one who kills: about to be killed, about to be stopped, went on.
    Killed {
        process: u32,
    },
    Paused {
        process: u32,
    },
    Resumed {
        process: u32,
    },
    ServerKilled,
    ServerBack,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub at: i64,
    pub line: Line,
}

/// The killer writes as this.
pub const KILLER: Who = Who { process: 0, thread: 0 };

pub fn now_us() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place for the reply is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec * 1_000_000 + time.tv_nsec / 1_000
}

pub struct Journal(File);

impl Journal {
    pub fn of(dir: &Path, who: Who) -> Self {
        let path = dir.join(format!("{}-{}.log", who.process, who.thread));
        Self(File::options().create(true).append(true).open(path).expect("a journal can be opened"))
    }

    /// Writes a line and returns its time, which lies before whatever is done next.
    pub fn write(&mut self, line: Line) -> i64 {
        let at = now_us();
        let text = Entry { at, line }.to_text();
        self.0.write_all(text.as_bytes()).expect("a journal can be written");
        at
    }
}

/// All journals of a folder, by author. A last line that was torn by a kill is not there.
pub fn read_all(dir: &Path) -> Vec<(Who, Vec<Entry>)> {
    let mut found = Vec::new();
    for file in fs::read_dir(dir).expect("the folder of the journals").flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        let Some((process, thread)) = name.strip_suffix(".log").and_then(|name| name.split_once('-')) else { continue };
        let who = Who { process: process.parse().expect("a number"), thread: thread.parse().expect("a number") };
        let text = fs::read_to_string(file.path()).expect("a journal can be read");
        found.push((who, read(&text)));
    }
    found.sort_by_key(|(who, _)| *who);
    found
}

pub fn read(text: &str) -> Vec<Entry> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |line: &str| Entry::parse(line).unwrap_or_else(|| panic!("not a line of a journal: {line:?}"));
    whole.lines().map(str::trim).filter(|line| !line.is_empty()).map(parse).collect()
}

impl Entry {
    fn to_text(&self) -> String {
        let Self { at, line } = self;
        match line {
            Line::Connected => format!("{at} connected\n"),
            Line::Asked(Asked { verb, key, owner, claim, lease_ms, wait_ms, bound }) => {
                let (verb, claim) = (verb.text(), claim.to_text());
                let bound = if *bound { "bound" } else { "free" };
                format!("{at} asked {verb} {key} {owner} {claim} {lease_ms} {wait_ms} {bound}\n")
            }
            Line::Answered { verdict, fence, lease_ms, waited_ms, active } => {
                let verdict = verdict.replace(' ', "_");
                format!("{at} answered {verdict} {fence} {lease_ms} {waited_ms} {active}\n")
            }
            Line::Unanswered { closed } => format!("{at} unanswered {}\n", if *closed { "closed" } else { "stuck" }),
            Line::Cut => format!("{at} cut\n"),
            Line::Killed { process } => format!("{at} killed {process}\n"),
            Line::Paused { process } => format!("{at} paused {process}\n"),
            Line::Resumed { process } => format!("{at} resumed {process}\n"),
            Line::ServerKilled => format!("{at} server-killed\n"),
            Line::ServerBack => format!("{at} server-back\n"),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |index: usize| words.get(index)?.parse::<i64>().ok();
        let text = |index: usize| words.get(index).map(|word| (*word).to_owned());
        let process = || Some(number(2)? as u32);
        let line = match *words.get(1)? {
            "connected" => Line::Connected,
            "asked" => Line::Asked(Asked {
                verb: Verb::parse(words.get(2)?)?,
                key: text(3)?,
                owner: text(4)?,
                claim: Claim::parse(words.get(5)?)?,
                lease_ms: number(6)?,
                wait_ms: number(7)?,
                bound: *words.get(8)? == "bound",
            }),
            "answered" => Line::Answered {
                verdict: text(2)?,
                fence: number(3)? as u64,
                lease_ms: number(4)?,
                waited_ms: number(5)?,
                active: number(6)?,
            },
            "unanswered" => Line::Unanswered { closed: *words.get(2)? == "closed" },
            "cut" => Line::Cut,
            "killed" => Line::Killed { process: process()? },
            "paused" => Line::Paused { process: process()? },
            "resumed" => Line::Resumed { process: process()? },
            "server-killed" => Line::ServerKilled,
            "server-back" => Line::ServerBack,
            _ => return None,
        };
        Some(Self { at: words.first()?.parse().ok()?, line })
    }
}

impl Verb {
    const ALL: [Self; 5] = [Self::Acquire, Self::Renew, Self::Release, Self::Check, Self::Break];

    fn text(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Renew => "renew",
            Self::Release => "release",
            Self::Check => "check",
            Self::Break => "break",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.text() == text)
    }
}

impl Claim {
    fn to_text(self) -> String {
        match self {
            Self::Exclusive => "exclusive".into(),
            Self::Shared => "shared".into(),
            Self::Permit(max) => max.to_string(),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        match text {
            "exclusive" => Some(Self::Exclusive),
            "shared" => Some(Self::Shared),
            number => number.parse().ok().map(Self::Permit),
        }
    }
}
