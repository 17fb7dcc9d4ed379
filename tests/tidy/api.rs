//! The public API of each language, listed in a file: changing it is a diff that a reviewer sees.
//!
//! The lists are made from the source. Rust: public items of public modules, with their signatures. Python: the stubs and `__all__`.
//! Node: the declarations.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use quote::ToTokens;
use syn::{ImplItem, Item, TraitItem, Visibility};

use crate::debts::Debts;
use crate::source::{files, is_test, parsed, read, workspace};

#[track_caller]
fn assert_listed(language: &str, lines: BTreeSet<String>) {
    let path = workspace().join("docs/api").join(format!("{language}.txt"));
    let now = lines.into_iter().collect::<Vec<_>>().join("\n") + "\n";
    if Debts::are_written() {
        fs::create_dir_all(path.parent().expect("a folder")).expect("docs/api can be made");
        return fs::write(path, now).expect("the list can be written");
    }
    let then = fs::read_to_string(&path).unwrap_or_default();
    if then != now {
        let (then, now): (BTreeSet<&str>, BTreeSet<&str>) = (then.lines().collect(), now.lines().collect());
        let gone: Vec<String> = then.difference(&now).map(|line| format!("  - {line}")).collect();
        let new: Vec<String> = now.difference(&then).map(|line| format!("  + {line}")).collect();
        panic!(
            "the public API of {language} is not what docs/api/{language}.txt lists; RESIL_TIDY=write writes it anew\n{}",
            [gone, new].concat().join("\n")
        );
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Tokens as one line.
fn line(tokens: impl ToTokens) -> String {
    let text = tokens.to_token_stream().to_string();
    text.replace(" :: ", "::")
        .replace(" < ", "<")
        .replace(" > ", "> ")
        .replace(" , ", ", ")
        .replace(" ( ", "(")
        .replace("& ", "&")
}

/// The file of `mod name;` that stands in `file`.
fn file_of(file: &Path, name: &str) -> PathBuf {
    let stem = file.file_stem().expect("a name").to_string_lossy().into_owned();
    let folder = file.parent().expect("a folder");
    let folder = if ["lib", "mod"].contains(&stem.as_str()) { folder.to_owned() } else { folder.join(stem) };
    let flat = folder.join(format!("{name}.rs"));
    if workspace().join(&flat).exists() { flat } else { folder.join(name).join("mod.rs") }
}

fn list_rust(file: &Path, items: &[Item], path: &str, lines: &mut BTreeSet<String>) {
    for item in items {
        match item {
            Item::Mod(module) if is_public(&module.vis) && !module.attrs.iter().any(is_test) => {
                let inner = format!("{path}::{}", module.ident);
                match &module.content {
                    Some((_, items)) => list_rust(file, items, &inner, lines),
                    None => {
                        let file = file_of(file, &module.ident.to_string());
                        list_rust(&file, &parsed(&file).items, &inner, lines);
                    }
                }
            }
            Item::Fn(item) if is_public(&item.vis) => drop(lines.insert(format!("{path}: {}", line(&item.sig)))),
            Item::Struct(item) if is_public(&item.vis) => {
                lines.insert(format!("{path}: struct {}{}", item.ident, line(&item.generics)));
                for field in item.fields.iter().filter(|field| is_public(&field.vis)) {
                    let name = field.ident.as_ref().map_or_else(|| "_".to_owned(), ToString::to_string);
                    lines.insert(format!("{path}: {}.{name}: {}", item.ident, line(&field.ty)));
                }
            }
            Item::Enum(item) if is_public(&item.vis) => {
                for variant in &item.variants {
                    lines.insert(format!("{path}: {}::{}{}", item.ident, variant.ident, line(&variant.fields)));
                }
            }
            Item::Trait(item) if is_public(&item.vis) => {
                lines.insert(format!("{path}: trait {}", item.ident));
                for inner in &item.items {
                    if let TraitItem::Fn(function) = inner {
                        lines.insert(format!("{path}: {}::{}", item.ident, line(&function.sig)));
                    }
                }
            }
            Item::Const(item) if is_public(&item.vis) => {
                lines.insert(format!("{path}: const {}: {}", item.ident, line(&item.ty)));
            }
            Item::Type(item) if is_public(&item.vis) => drop(lines.insert(format!("{path}: type {}", item.ident))),
            Item::Use(item) if is_public(&item.vis) => drop(lines.insert(format!("{path}: use {}", line(&item.tree)))),
            Item::Impl(item) if item.trait_.is_none() => {
                for inner in &item.items {
                    if let ImplItem::Fn(function) = inner
                        && is_public(&function.vis)
                    {
                        lines.insert(format!("{path}: {}::{}", line(&item.self_ty), line(&function.sig)));
                    }
                }
            }
            _ => {}
        }
    }
}

#[test]
fn the_public_api_of_rust_is_listed() {
    let mut lines = BTreeSet::new();
    let root = Path::new("sdk-rust/src/lib.rs");
    list_rust(root, &parsed(root).items, "resil", &mut lines);
    // Types of public modules get methods in files of private ones, too.
    for file in files(&["sdk-rust/src"], &[".rs"]) {
        let of = file.strip_prefix("sdk-rust/src").expect("below src").with_extension("");
        let path = format!("resil::{}", of.display()).replace('/', "::").replace("::mod", "");
        let is_inside = lines.iter().any(|line| line.starts_with(&format!("{path}:")));
        let is_private = !is_inside && !file.components().any(|part| part.as_os_str() == "tests");
        if is_private {
            let impls: Vec<Item> =
                parsed(&file).items.into_iter().filter(|item| matches!(item, Item::Impl(_))).collect();
            let mut private = BTreeSet::new();
            list_rust(&file, &impls, &path, &mut private);
            lines.extend(private.into_iter().map(|line| format!("(in a private module) {line}")));
        }
    }
    assert!(lines.len() > 200, "the list is not empty");
    assert_listed("rust", lines);
}

/// Signatures without their bodies and comments.
fn declarations(file: &Path, starts: &[&str]) -> BTreeSet<String> {
    let name = file.file_name().expect("a name").to_string_lossy().into_owned();
    let mut scope = Vec::new();
    let mut lines = BTreeSet::new();
    for text in read(file).lines() {
        let indent = text.len() - text.trim_start().len();
        let trimmed = text.trim();
        if trimmed.is_empty()
            || ["*", "/*", "//", "#", "\"\"\"", "}", ")"].iter().any(|comment| trimmed.starts_with(comment))
        {
            continue;
        }
        scope.retain(|(of, _): &(usize, String)| *of < indent);
        if starts.iter().any(|start| trimmed.starts_with(start)) || !scope.is_empty() {
            let within: Vec<&str> = scope.iter().map(|(_, name)| name.as_str()).collect();
            lines.insert([&[name.as_str()], &within[..], &[trimmed]].concat().join(" > "));
        }
        if ["class ", "export interface ", "export class ", "export declare class "]
            .iter()
            .any(|start| trimmed.starts_with(start))
        {
            let name = trimmed.trim_end_matches(['{', ':', ' ']).to_owned();
            scope.push((indent, name));
        }
    }
    lines
}

#[test]
fn the_public_api_of_python_is_listed() {
    let starts = ["class ", "def ", "async def ", "@", "from "];
    let lines =
        files(&["sdk-python/python/resil"], &[".pyi"]).iter().flat_map(|file| declarations(file, &starts)).collect();
    assert_listed("python", lines);
}

#[test]
fn the_public_api_of_node_is_listed() {
    let files = files(&["sdk-node/lib"], &[".d.ts"]);
    assert_listed("node", files.iter().flat_map(|file| declarations(file, &["export "])).collect());
}
