//! The public API of each language, listed in a file: changing it is a diff that a reviewer sees.
//!
//! The lists are made from the source. Rust: public items of public modules, with their signatures. Python: the stubs and `__all__`.
//! Node: the declarations.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use quote::ToTokens;
use syn::{ImplItem, Item, ItemImpl, ItemMacro, TraitItem, UseTree, Visibility};

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

/// Everything of the crate that a name can lead to: names of types are unique in it.
struct Crate {
    items: BTreeMap<String, Item>,
    impls: Vec<ItemImpl>,
    macros: Vec<ItemMacro>,
}

impl Crate {
    fn read(folder: &str) -> Self {
        let mut all = Self { items: BTreeMap::new(), impls: Vec::new(), macros: Vec::new() };
        for file in files(&[folder], &[".rs"]) {
            if !file.components().any(|part| part.as_os_str() == "tests") && !file.ends_with("tests.rs") {
                all.add(parsed(&file).items);
            }
        }
        all
    }

    fn add(&mut self, items: Vec<Item>) {
        for item in items {
            match item {
                Item::Impl(block) if block.trait_.is_none() => self.impls.push(block),
                Item::Macro(made) => self.macros.push(made),
                Item::Mod(module) if !module.attrs.iter().any(is_test) => {
                    self.add(module.content.map(|(_, items)| items).unwrap_or_default());
                }
                item => {
                    if let Some(name) = name_of(&item) {
                        self.items.insert(name, item);
                    }
                }
            }
        }
    }
}

/// Of what can be named from outside.
fn name_of(item: &Item) -> Option<String> {
    match item {
        Item::Fn(item) if is_public(&item.vis) => Some(item.sig.ident.to_string()),
        Item::Struct(item) if is_public(&item.vis) => Some(item.ident.to_string()),
        Item::Enum(item) if is_public(&item.vis) => Some(item.ident.to_string()),
        Item::Trait(item) if is_public(&item.vis) => Some(item.ident.to_string()),
        Item::Const(item) if is_public(&item.vis) => Some(item.ident.to_string()),
        Item::Type(item) if is_public(&item.vis) => Some(item.ident.to_string()),
        _ => None,
    }
}

/// The names at the ends of `pub use a::{b, c::d};`.
fn used(tree: &UseTree, names: &mut Vec<String>) {
    match tree {
        UseTree::Path(path) => used(&path.tree, names),
        UseTree::Name(name) => names.push(name.ident.to_string()),
        UseTree::Rename(name) => names.push(name.rename.to_string()),
        UseTree::Group(group) => group.items.iter().for_each(|tree| used(tree, names)),
        UseTree::Glob(_) => names.push("*".to_owned()),
    }
}

/// What is public of one item. Methods are listed by their type.
fn list_item(item: &Item, path: &str, lines: &mut BTreeSet<String>) {
    match item {
        Item::Fn(item) => drop(lines.insert(format!("{path}: {}", line(&item.sig)))),
        Item::Struct(item) => {
            lines.insert(format!("{path}: struct {}{}", item.ident, line(&item.generics)));
            for field in item.fields.iter().filter(|field| is_public(&field.vis)) {
                let name = field.ident.as_ref().map_or_else(|| "_".to_owned(), ToString::to_string);
                lines.insert(format!("{path}: {}.{name}: {}", item.ident, line(&field.ty)));
            }
        }
        Item::Enum(item) => {
            for variant in &item.variants {
                lines.insert(format!("{path}: {}::{}{}", item.ident, variant.ident, line(&variant.fields)));
            }
        }
        Item::Trait(item) => {
            lines.insert(format!("{path}: trait {}", item.ident));
            for inner in &item.items {
                if let TraitItem::Fn(function) = inner {
                    lines.insert(format!("{path}: {}::{}", item.ident, line(&function.sig)));
                }
            }
        }
        Item::Const(item) => drop(lines.insert(format!("{path}: const {}: {}", item.ident, line(&item.ty)))),
        Item::Type(item) => drop(lines.insert(format!("{path}: type {}", item.ident))),
        _ => {}
    }
}

/// Public modules, and what they take from private ones by `pub use`. `named` are the names that can be reached.
fn list_rust(
    whole: &Crate,
    file: &Path,
    items: &[Item],
    path: &str,
    lines: &mut BTreeSet<String>,
    named: &mut BTreeSet<String>,
) {
    for item in items {
        match item {
            Item::Mod(module) if is_public(&module.vis) && !module.attrs.iter().any(is_test) => {
                let inner = format!("{path}::{}", module.ident);
                match &module.content {
                    Some((_, items)) => list_rust(whole, file, items, &inner, lines, named),
                    None => {
                        let file = file_of(file, &module.ident.to_string());
                        list_rust(whole, &file, &parsed(&file).items, &inner, lines, named);
                    }
                }
            }
            Item::Use(item) if is_public(&item.vis) => {
                let mut names = Vec::new();
                used(&item.tree, &mut names);
                for name in names {
                    match whole.items.get(&name) {
                        Some(found) if !named.contains(&name) => list_item(found, path, lines),
                        Some(_) => drop(lines.insert(format!("{path}: use {name}"))),
                        None => drop(lines.insert(format!("{path}: use {}", line(&item.tree)))),
                    }
                    named.insert(name);
                }
            }
            item => {
                if let Some(name) = name_of(item) {
                    if !named.contains(&name) {
                        list_item(item, path, lines);
                    }
                    named.insert(name);
                }
            }
        }
    }
}

#[test]
fn the_public_api_of_rust_is_listed() {
    let (mut lines, mut named) = (BTreeSet::new(), BTreeSet::new());
    let (whole, root) = (Crate::read("sdk-rust/src"), Path::new("sdk-rust/src/lib.rs"));
    list_rust(&whole, root, &parsed(root).items, "resil", &mut lines, &mut named);
    // Methods may be written in private modules, too.
    let is_named = |text: &str| named.contains(text.split(['<', ' ']).next().unwrap_or_default());
    for block in &whole.impls {
        let of = line(&block.self_ty);
        for inner in &block.items {
            if let ImplItem::Fn(function) = inner
                && is_public(&function.vis)
                && is_named(&of)
            {
                lines.insert(format!("{of}: {}", line(&function.sig)));
            }
        }
    }
    for made in whole.macros.iter().filter(|made| made.mac.path.is_ident("setters")) {
        let text = line(&made.mac.tokens);
        if is_named(&text) {
            lines.insert(format!("{}: builder methods {text}", text.split(' ').next().unwrap_or_default()));
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
        if ["class ", "export interface ", "export class ", "export declare class ", "declare module ", "interface "]
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
    assert_listed("node", files.iter().flat_map(|file| declarations(file, &["export ", "declare module "])).collect());
}
