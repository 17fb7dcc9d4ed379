//! What the tree contains: its files as git knows them, and Rust files as syntax.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use syn::{Item, ItemMod};

use crate::debts::Debts;

pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests live in the workspace")
}

/// Tracked files, and new ones that are not ignored, below any of `folders` and with any of these endings.
pub fn files(folders: &[&str], endings: &[&str]) -> Vec<PathBuf> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "--"])
        .args(folders)
        .current_dir(workspace())
        .output()
        .expect("git lists the files");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let listed = String::from_utf8(listed.stdout).expect("names are UTF-8");
    let mut files: Vec<PathBuf> = listed
        .lines()
        .filter(|name| endings.iter().any(|ending| name.ends_with(ending)))
        .map(PathBuf::from)
        .filter(|name| workspace().join(name).is_file())
        .collect();
    files.sort();
    files.dedup();
    assert!(!files.is_empty(), "there are files in {folders:?}");
    files
}

pub fn read(file: &Path) -> String {
    fs::read_to_string(workspace().join(file)).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The folders that ship, each with the crate it belongs to.
pub const SHIPPED: [(&str, &str); 8] = [
    ("core", "core/src"),
    ("wire", "wire/src"),
    ("module", "module/src"),
    ("sdk-rust", "sdk-rust/src"),
    ("sdk-python", "sdk-python/src"),
    ("sdk-node", "sdk-node/src"),
    ("cli", "cli/src"),
    ("gateway", "gateway/src"),
];

/// Every item of a file, also those of modules inside of it, but for tests.
pub fn each_item(items: &[Item], see: &mut impl FnMut(&Item)) {
    for item in items {
        if let Item::Mod(ItemMod { attrs, content, .. }) = item {
            if attrs.iter().any(is_test) {
                continue;
            }
            if let Some((_, items)) = content {
                each_item(items, see);
            }
        }
        see(item);
    }
}

pub fn is_test(attribute: &syn::Attribute) -> bool {
    attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
}

pub fn parsed(file: &Path) -> syn::File {
    syn::parse_file(&read(file)).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn is_of_tests(file: &Path) -> bool {
    file.components().any(|part| part.as_os_str() == "tests") || file.ends_with("tests.rs")
}

/// The unsafe code of the module lives at its edge, and that of each binding in one file.
#[test]
fn unsafe_code_is_where_it_belongs() {
    let places = ["module/src/edge", "module/src/datatype", "sdk-python/src/edge.rs", "sdk-node/src/edge.rs"];
    let allowed = |file: &Path| places.iter().any(|place| file.starts_with(place));
    let mut elsewhere = BTreeMap::new();
    for (_, folder) in SHIPPED {
        for file in files(&[folder], &[".rs"]) {
            let code: String = read(&file).lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            let places = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"];
            let count: usize = places.iter().map(|place| code.matches(place).count()).sum();
            if count > 0 && !allowed(&file) {
                elsewhere.insert(file.display().to_string(), count);
            }
        }
    }
    Debts::compare("unsafe code outside of the edge", elsewhere);
}

#[test]
fn core_and_the_rust_sdk_forbid_unsafe_code() {
    for root in [
        "core/src/lib.rs",
        "wire/src/lib.rs",
        "sdk-rust/src/lib.rs",
        "cli/src/main.rs",
        "gateway/src/lib.rs",
        "gateway/src/main.rs",
    ] {
        assert!(read(Path::new(root)).contains("#![forbid(unsafe_code)]"), "{root}");
    }
}

#[test]
fn core_reads_no_clock_and_draws_no_chance() {
    for file in files(&["core/src"], &[".rs"]) {
        for line in read(&file).lines().filter(|line| !line.trim_start().starts_with("//")) {
            for word in
                ["std::time", "SystemTime", "Instant::now", "rand::", "HashMap", "HashSet", "std::net", "std::fs"]
            {
                assert!(!line.contains(word), "{} uses {word}: {line}", file.display());
            }
        }
    }
}

#[test]
fn files_stay_below_500_lines() {
    let code = files(
        &[
            "core",
            "wire",
            "module",
            "sdk-rust",
            "sdk-python",
            "sdk-node",
            "cli",
            "gateway",
            "tests",
            "benches",
            "examples",
        ],
        &[".rs", ".py", ".pyi", ".js", ".mjs", ".ts"],
    );
    let long = code.iter().map(|file| (file.display().to_string(), read(file).lines().count()));
    Debts::compare("lines of files over 500 lines", long.filter(|(_, lines)| *lines > 500).collect());
}

/// Every file opens with its idea.
#[test]
fn files_open_with_their_idea() {
    let mut without = BTreeMap::new();
    for (_, folder) in SHIPPED {
        for file in files(&[folder], &[".rs"]) {
            if !is_of_tests(&file) && !read(&file).starts_with("//!") {
                without.insert(file.display().to_string(), 1);
            }
        }
    }
    Debts::compare("files that do not open with their idea", without);
}

/// Names that every module may have for its own.
const COMMON: [&str; 5] = ["Settings", "Config", "Error", "Options", "Builder"];

#[test]
fn a_type_name_is_defined_once_in_a_crate() {
    let mut repeated = BTreeMap::new();
    for (name, folder) in SHIPPED {
        let mut defined: BTreeMap<String, usize> = BTreeMap::new();
        for file in files(&[folder], &[".rs"]).iter().filter(|file| !is_of_tests(file)) {
            each_item(&parsed(file).items, &mut |item| {
                let ident = match item {
                    Item::Struct(item) => &item.ident,
                    Item::Enum(item) => &item.ident,
                    Item::Trait(item) => &item.ident,
                    Item::Union(item) => &item.ident,
                    _ => return,
                };
                *defined.entry(ident.to_string()).or_default() += 1;
            });
        }
        let several = defined.into_iter().filter(|(ident, count)| *count > 1 && !COMMON.contains(&ident.as_str()));
        repeated.extend(several.map(|(ident, count)| (format!("{name}: {ident}"), count)));
    }
    Debts::compare("type names defined more than once in a crate", repeated);
}

/// A fault whose text is gone would be planted nowhere.
#[test]
fn every_planted_fault_has_its_place() {
    #[derive(serde::Deserialize)]
    struct Mutant {
        promise: String,
        file: PathBuf,
        find: String,
    }
    let mutants: Vec<Mutant> = serde_json::from_str(&read(Path::new("tests/mutants.json"))).expect("a list of faults");
    let is_lost = |mutant: &&Mutant| read(&mutant.file).matches(&mutant.find).count() != 1;
    let lost: Vec<&str> = mutants.iter().filter(is_lost).map(|mutant| mutant.promise.as_str()).collect();
    assert!(lost.is_empty(), "the text of these faults must occur once in their file: {lost:#?}");
}
