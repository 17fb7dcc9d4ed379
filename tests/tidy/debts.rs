//! Where rules are not kept yet, as numbers that may only go down.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

use crate::source::workspace;

type Counts = BTreeMap<String, usize>;

static FILE: Mutex<()> = Mutex::new(());

pub struct Debts;

impl Debts {
    fn path() -> PathBuf {
        workspace().join("tests/tidy/debts.json")
    }

    pub fn are_written() -> bool {
        std::env::var("RESIL_TIDY").is_ok_and(|what| what == "write")
    }

    /// Holds what was found against what is known of `rule`.
    #[track_caller]
    pub fn compare(rule: &str, found: Counts) {
        let _file = FILE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let text = fs::read_to_string(Self::path()).unwrap_or_else(|_| "{}".to_owned());
        let mut known: BTreeMap<String, Counts> = serde_json::from_str(&text).expect("debts.json is JSON");
        let before = known.remove(rule).unwrap_or_default();
        if Self::are_written() {
            known.insert(rule.to_owned(), found);
            let text = serde_json::to_string_pretty(&known).expect("numbers can be written");
            return fs::write(Self::path(), text + "\n").expect("debts.json can be written");
        }
        let count = |counts: &Counts, place: &String| counts.get(place).copied().unwrap_or(0);
        let mut changed = Vec::new();
        for place in found.keys().chain(before.keys().filter(|place| !found.contains_key(*place))) {
            let (then, now) = (count(&before, place), count(&found, place));
            if now > then {
                changed.push(format!("  {place}: {now}, was {then}: please mend it"));
            } else if now < then {
                changed.push(format!("  {place}: {now}, was {then}: well done; RESIL_TIDY=write writes it down"));
            }
        }
        assert!(changed.is_empty(), "{rule}\n{}", changed.join("\n"));
    }
}
