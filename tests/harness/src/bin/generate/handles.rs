//! The handles of Python and Node, from commands/handles.json: for each language the files that define them, with the names
//! that are public. Declarations, registration and exports follow; a new handle is a line for each language.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;

use crate::Files;
use crate::page::COMMAND;

/// Public names by the file that defines them, without its extension.
pub type Names = BTreeMap<String, Vec<String>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handles {
    /// Classes of sdk-python/src/handles/. In Rust each has `Py` before its name.
    pub python: Names,
    /// Names that the files of sdk-node/lib/ export.
    node: Names,
}

/// What is there beside the list.
pub struct Found {
    /// sdk-node/src/handles/*.rs
    pub node_sources: Vec<String>,
    /// sdk-node/lib/types/*.d.ts
    pub node_types: Vec<String>,
    /// sdk-python/python/resil/_stubs/*.pyi, each with its text
    pub python_stubs: Vec<(String, String)>,
}

pub fn files(handles: &Handles, found: &Found) -> Files {
    Files::from([
        ("sdk-python/src/handles/mod.rs".into(), python_sources(&handles.python)),
        ("sdk-python/python/resil/_native.pyi".into(), python_stubs(&found.python_stubs)),
        ("sdk-node/src/handles/mod.rs".into(), node_sources(&found.node_sources)),
        ("sdk-node/lib/handles.js".into(), node_handles(&handles.node)),
        ("sdk-node/lib/index.js".into(), node_index(&handles.node)),
        ("sdk-node/lib/index.mjs".into(), node_module(&handles.node)),
        ("sdk-node/lib/index.d.ts".into(), node_types(&found.node_types)),
    ])
}

fn head(from: &str) -> String {
    format!("Generated from {from} by `{COMMAND}`. Do not edit.")
}

fn python_sources(names: &Names) -> String {
    let mut text = format!("//! One file for each handle. {}\n\n", head("commands/handles.json"));
    names.keys().for_each(|file| {
        let _ = writeln!(text, "pub mod {file};");
    });
    text.push_str(
        "\nuse pyo3::prelude::*;\n\n\
         /// Adds every class to the native module.\n\
         pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {\n",
    );
    for (file, classes) in names {
        for class in classes {
            let _ = writeln!(text, "    module.add_class::<{file}::Py{class}>()?;");
        }
    }
    text.push_str("    Ok(())\n}\n");
    text
}

/// A stub may have a class `_Makes...` with the methods by which a client makes its handles.
fn python_stubs(stubs: &[(String, String)]) -> String {
    let mut text = format!(
        "\"\"\"The types of the native module: those of `_stubs/`, together.\n\n{}\n\"\"\"\n\n# ruff: noqa: F403\n\nfrom typing import final\n\n",
        head("resil/_stubs/")
    );
    let mut bases = vec!["_Client".to_owned()];
    for (name, stub) in stubs {
        let _ = writeln!(text, "from ._stubs.{name} import *");
        let makes: Vec<&str> = stub
            .lines()
            .filter_map(|line| line.strip_prefix("class "))
            .filter_map(|line| line.split([':', '(']).next())
            .filter(|class| class.starts_with("_Makes") || *class == "_Client")
            .collect();
        if !makes.is_empty() {
            let _ = writeln!(text, "from ._stubs.{name} import {}", makes.join(", "));
        }
        bases.extend(makes.iter().filter(|class| **class != "_Client").map(|class| (*class).to_owned()));
    }
    text.push_str("\n__version__: str\n\n@final\nclass Client(\n");
    bases.iter().for_each(|base| {
        let _ = writeln!(text, "    {base},");
    });
    text.push_str("): ...\n");
    text
}

fn node_sources(names: &[String]) -> String {
    let mut text = format!("//! One file for each handle. {}\n\n", head("this folder"));
    names.iter().for_each(|name| {
        let _ = writeln!(text, "pub mod {name};");
    });
    text
}

fn node_handles(names: &Names) -> String {
    let head = head("commands/handles.json");
    let mut text = format!(
        "'use strict';\n/** Every file of handles: what each calls `made` are methods of Client. {head} */\nmodule.exports = [\n"
    );
    names.keys().for_each(|file| {
        let _ = writeln!(text, "  require('./{file}.js'),");
    });
    text.push_str("];\n");
    text
}

fn node_index(names: &Names) -> String {
    let mut text = format!(
        "'use strict';\n/** Resil for Node. The types of all this, with what each promises, are in types/. {} */\n\
         const {{ classes }} = require('./errors.js');\nconst {{ Client, connect }} = require('./client.js');\n",
        head("commands/handles.json")
    );
    for (file, names) in names {
        let _ = writeln!(text, "const {{ {} }} = require('./{file}.js');", names.join(", "));
    }
    text.push_str("\nmodule.exports = {\n  ...classes,\n  Client, connect,\n");
    for names in names.values() {
        let _ = writeln!(text, "  {},", names.join(", "));
    }
    text.push_str("};\n");
    text
}

fn node_module(names: &Names) -> String {
    let mut text = format!(
        "/** The same as index.js, for `import`: one package for both. {} */\n\
         import resil from './index.js';\n\nexport * from './errors.mjs';\n\nexport const {{\n  Client, connect,\n",
        head("commands/handles.json")
    );
    for names in names.values() {
        let _ = writeln!(text, "  {},", names.join(", "));
    }
    text.push_str("} = resil;\n");
    text
}

fn node_types(files: &[String]) -> String {
    let mut text = format!(
        "/**\n \
         * Resil for Node: limits, breakers, locks, idempotency and cached loads that a whole fleet shares, and the policies around\n \
         * them. Everything runs on `memory://` without a server, and with the same verdicts on a server.\n \
         *\n \
         * Durations are numbers of milliseconds, or text such as `\"250ms\"` (units: us, ms, s, m, h, d).\n \
         * What comes back is in milliseconds, and says so in its name. Counters that may pass 2^53 are bigints.\n \
         *\n \
         * {}\n \
         */\n",
        head("types/")
    );
    files.iter().for_each(|file| {
        let _ = writeln!(text, "export * from './types/{file}.js';");
    });
    text
}
