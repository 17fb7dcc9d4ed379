//! Policies of a file that is read again when it changes.
//!
//! # What is promised
//! - A change holds for calls whose policy is asked for after it was seen, within [`LOOK_EVERY`]. Calls under way end as they began.
//! - A file that is not valid, or not there, changes nothing: the last good one stays, and [`problem`](WatchedPolicies::problem) says
//!   what is wrong. Nothing of it is half-applied.
//! - What did not change is the same as before, with its counts: a whole policy, or its breaker, its budget, its places.
//!
//! The file's text is compared, not its time: editors, symbolic links and coarse clocks cannot hide a change.
//!
//! ```
//! use resil::policy::WatchedPolicies;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! # let path = std::env::temp_dir().join(format!("resil-watched-{}.yaml", std::process::id()));
//! # std::fs::write(&path, "policies: { payments: { retry: { maxAttempts: 4 } } }").unwrap();
//! let client = resil::connect("memory://").await?;
//! let policies = WatchedPolicies::open(&client, &path)?;
//! assert_eq!(policies.policy("payments")?.name(), "payments");
//! assert_eq!(policies.problem(), None);
//! # std::fs::remove_file(&path).unwrap();
//! # Ok::<(), resil::Error>(()) }).unwrap();
//! ```

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::chain::Policy;
use super::made::MadePolicy;
use super::settings::PolicyFile;
use crate::client::Client;
use crate::error::Error;
use crate::settings::InPart;

/// How often the file is looked at.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A file that is longer is refused.
const FILE_MAX: u64 = 16 * 1024 * 1024;

/// The policies of a file. Cheap to clone; it is looked at until the last clone is dropped.
#[derive(Debug, Clone)]
pub struct WatchedPolicies(Arc<Watched>);

#[derive(Debug)]
struct Watched {
    client: Client,
    path: PathBuf,
    present: Mutex<Present>,
}

#[derive(Debug, Default)]
struct Present {
    /// The text that was last looked at, good or not; `None` if it could not be read.
    seen: Option<String>,
    policies: BTreeMap<String, MadePolicy>,
    problem: Option<Error>,
}

impl WatchedPolicies {
    /// Reads the file. The first time it has to be valid.
    pub fn open(client: &Client, path: impl AsRef<Path>) -> Result<Self, Error> {
        let (client, path) = (client.clone(), path.as_ref().to_owned());
        let watched = Arc::new(Watched { client, path, present: Mutex::default() });
        watched.look();
        if let Some(problem) = watched.present.lock().problem.clone() {
            return Err(problem);
        }
        if let Some(runtime) = watched.client.background() {
            runtime.spawn(look_again(Arc::downgrade(&watched), watched.client.clock().clone()));
        }
        Ok(Self(watched))
    }

    /// The policy of this name as it is now. Ask for each call; it is cheap.
    pub fn policy(&self, name: &str) -> Result<Policy, Error> {
        let present = self.0.present.lock();
        let found = present.policies.get(name).map(|made| made.policy.clone());
        found.ok_or_else(|| {
            let known = present.policies.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            Error::InvalidArgument(format!("there is no policy of the name {name:?}; there are: {known}"))
        })
    }

    pub fn names(&self) -> Vec<String> {
        self.0.present.lock().policies.keys().cloned().collect()
    }

    /// Why the file as it is now was not taken, if it was not.
    pub fn problem(&self) -> Option<Error> {
        self.0.present.lock().problem.clone()
    }

    /// Looks at the file at once.
    pub fn look(&self) {
        self.0.look();
    }
}

/// On a thread of its own: a file system that hangs holds up nobody else.
async fn look_again(watched: Weak<Watched>, clock: crate::clock::Clock) {
    loop {
        clock.sleep(LOOK_EVERY).await;
        let Some(watched) = watched.upgrade() else { return };
        if tokio::task::spawn_blocking(move || watched.look()).await.is_err_and(|error| error.is_cancelled()) {
            return;
        }
    }
}

/// The text of a regular file. Others may have no end, or block the reader.
fn read_text(path: &Path) -> std::io::Result<String> {
    let refused = |why: &str| std::io::Error::other(why.to_owned());
    if !std::fs::metadata(path)?.is_file() {
        return Err(refused("it is not a regular file"));
    }
    let mut text = String::new();
    std::fs::File::open(path)?.take(FILE_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_MAX { Err(refused("it is longer than 16 MB")) } else { Ok(text) }
}

impl Watched {
    fn look(&self) {
        let read = read_text(&self.path);
        let mut present = self.present.lock();
        let text = match read {
            Ok(text) if present.seen.as_ref() == Some(&text) => return,
            Ok(text) => text,
            Err(error) => {
                let problem = Error::InvalidArgument(format!(
                    "path: {:?} cannot be read: {error}",
                    self.path.display().to_string()
                ));
                present.seen = None;
                self.refuse(&mut present, problem);
                return;
            }
        };
        let made = PolicyFile::from_text(&text).and_then(|file| self.make(&file, &present.policies));
        present.seen = Some(text);
        match made {
            Ok(policies) => {
                tracing::info!(name: "resil.policies.read", path = %self.path.display(), "policies were read");
                (present.policies, present.problem) = (policies, None);
            }
            Err(problem) => self.refuse(&mut present, problem),
        }
    }

    fn refuse(&self, present: &mut Present, problem: Error) {
        if present.problem.as_ref() != Some(&problem) {
            tracing::warn!(name: "resil.policies.refused", path = %self.path.display(), %problem, "the last good policies stay");
            present.problem = Some(problem);
        }
    }

    /// All of them, or none.
    fn make(
        &self,
        file: &PolicyFile,
        before: &BTreeMap<String, MadePolicy>,
    ) -> Result<BTreeMap<String, MadePolicy>, Error> {
        let mut policies = BTreeMap::new();
        for name in file.policies.keys() {
            let settings = file.settings(name)?;
            let made =
                MadePolicy::new(&self.client, settings, before.get(name)).in_part(&format!("policies.{name}"))?;
            policies.insert(name.clone(), made);
        }
        Ok(policies)
    }
}
