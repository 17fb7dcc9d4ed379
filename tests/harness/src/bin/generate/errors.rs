//! What every language knows of the errors: codes and statuses in Rust, classes in Python and Node, docs/errors.md.

use std::fmt::Write as _;

use serde::Deserialize;

use crate::Files;
use crate::handles::Names;
use crate::page::COMMAND;

/// A row of commands/errors.json.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorRow {
    /// The stable name, the same in every language.
    code: String,
    class: String,
    http: u16,
    /// As gRPC spells it.
    grpc: String,
    /// Whether the same call may succeed if it is made again, later.
    retryable: bool,
    /// One sentence that names nothing and nobody: any caller may see it.
    meaning: String,
    /// An exception of Python that it also is.
    python_base: Option<String>,
    /// An error of JavaScript that it also is.
    node_base: Option<String>,
    /// What an error has beyond what all have.
    #[serde(default)]
    fields: Vec<Field>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Field {
    python: Option<String>,
    node: Option<String>,
    text: String,
}

const PYTHON_EXPORTS: &str = "sdk-python/python/resil/__init__.py";

/// `present` is what the file of Python's exports has now: only a part of it is generated.
pub fn files(
    rows: &[ErrorRow],
    handles: &Names,
    present: &dyn Fn(&str) -> Result<String, String>,
) -> Result<Files, String> {
    for row in rows {
        if row.class != format!("{}Error", camel(&row.code)) {
            return Err(format!("errors.json: the class of {} should be named after it", row.code));
        }
    }
    Ok(Files::from([
        ("docs/errors.md".into(), page(rows)),
        ("sdk-rust/src/error/codes.rs".into(), rust(rows)),
        ("sdk-python/python/resil/errors.py".into(), python(rows)),
        (PYTHON_EXPORTS.into(), python_exports(rows, handles, &present(PYTHON_EXPORTS)?)?),
        ("sdk-node/lib/error_table.js".into(), node(rows)),
        ("sdk-node/lib/errors.mjs".into(), node_exports(rows)),
        ("sdk-node/lib/types/errors.d.ts".into(), node_types(rows)),
    ]))
}

/// `CircuitOpen` for `CIRCUIT_OPEN`.
fn camel(code: &str) -> String {
    let word = |word: &str| word[..1].to_owned() + &word[1..].to_lowercase();
    code.split('_').map(word).collect()
}

fn head() -> String {
    format!("Generated from commands/errors.json by `{COMMAND}`. Do not edit.")
}

fn page(rows: &[ErrorRow]) -> String {
    let mut text = format!(
        "<!-- {} -->\n\n\
         # Errors\n\n\
         Every language has the same errors. A code never changes its name or its meaning. `retry` says whether the same call may \
         succeed when you make it\nagain later; if the time is known, the error has it (`retry_after`).\n\n\
         An error of your own function is never one of these: it is returned as it is.\n\n\
         | code | class in Python and Node | meaning | retry | HTTP | gRPC |\n| --- | --- | --- | --- | --- | --- |\n",
        head()
    );
    for ErrorRow { code, class, http, grpc, meaning, retryable, .. } in rows {
        let retry = if *retryable { "yes" } else { "no" };
        let _ = writeln!(text, "| `{code}` | `{class}` | {meaning} | {retry} | {http} | {grpc} |");
    }
    text
}

fn rust(rows: &[ErrorRow]) -> String {
    let mut text = format!(
        "//! {}\n\n\
         use super::Row;\n\
         use crate::grpc::StatusCode;\n\n\
         /// The stable names of errors, the same in every language.\n\
         #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]\n\
         #[non_exhaustive]\n\
         pub enum Code {{\n",
        head()
    );
    for row in rows {
        let _ = writeln!(text, "    /// {}\n    {},", row.meaning, camel(&row.code));
    }
    let _ = write!(
        text,
        "}}\n\n\
         /// Every code with what is known of it, in the order of the variants.\n\
         pub(super) const TABLE: [Row; {}] = [\n",
        rows.len()
    );
    for ErrorRow { code, http, grpc, meaning, retryable, .. } in rows {
        let (name, grpc) = (camel(code), camel(grpc));
        let _ = writeln!(
            text,
            "    Row {{ code: Code::{name}, text: {code:?}, grpc: StatusCode::{grpc}, http: {http}, \
             is_retryable: {retryable}, meaning: {meaning:?} }},",
        );
    }
    text.push_str("];\n");
    text
}

fn python(rows: &[ErrorRow]) -> String {
    let mut text = format!(
        "\"\"\"What can go wrong, as one family: a stable code, whether to retry, and how long to wait before.\n\n\
         Every class has its code in its name: ``CIRCUIT_OPEN`` is :class:`CircuitOpenError`. An exception of your own function is\n\
         never wrapped: it is raised as it is. Only when retries were given up :class:`RetryExhaustedError` is raised *from* the\n\
         last one (``error.__cause__``).\n\n\
         >>> import resil\n\
         >>> client = resil.connect(\"memory://\").wait()\n\
         >>> logins = client.limiter(\"logins\", limit=1, period=60)\n\
         >>> logins.acquire(\"ann\").wait()\n\
         >>> try:\n\
         ...     logins.acquire(\"ann\").wait()\n\
         ... except resil.RateLimitExceededError as refused:\n\
         ...     print(refused.code, refused.retryable, refused.retry_after > 50)\n\
         RATE_LIMIT_EXCEEDED True True\n\n\
         {}\n\
         \"\"\"\n\n\
         from __future__ import annotations\n\n\
         import builtins\n\
         from typing import Any\n\n\
         from ._resil_error import ResilError\n",
        head()
    );
    for row in rows {
        let bases = row.python_base.as_ref().map_or("ResilError".to_owned(), |base| format!("ResilError, {base}"));
        let _ = write!(
            text,
            "\n\nclass {}({bases}):\n    \"\"\"{}\"\"\"\n\n    code = {:?}\n    retryable = {}\n    http_status = {}\n    \
             grpc_status = {:?}\n    meaning = {:?}\n",
            row.class,
            row.meaning,
            row.code,
            if row.retryable { "True" } else { "False" },
            row.http,
            row.grpc,
            row.meaning,
        );
        for (field, text_of) in row.fields.iter().filter_map(|field| Some((field.python.as_ref()?, &field.text))) {
            let _ = write!(text, "    #: {text_of}\n    {field}\n");
        }
    }
    text.push_str("\n\n#: Every class by its code.\nBY_CODE: dict[str, type[ResilError]] = {\n");
    for row in rows {
        let _ = writeln!(text, "    {:?}: {},", row.code, row.class);
    }
    text.push_str("}\n\n__all__ = [\n");
    for class in sorted_classes(rows) {
        let _ = writeln!(text, "    {class:?},");
    }
    text.push_str("]\n");
    text
}

/// Type checkers want the exports of a package as a list of texts.
fn python_exports(rows: &[ErrorRow], handles: &Names, present: &str) -> Result<String, String> {
    let mut native: Vec<&str> = handles.values().flatten().map(String::as_str).collect();
    native.sort_unstable();
    let errors = sorted_classes(rows);
    let imports = |module: &str, classes: &[&str]| {
        let names: String = classes.iter().map(|class| format!("    {class},\n")).collect();
        format!("from {module} import (\n{names})\n")
    };
    let imports = imports("._native", &native) + &imports(".errors", &errors);
    let with_imports = replaced(present, "Imports of handles and errors", &imports)?;
    let texts: String = native.iter().chain(&errors).map(|class| format!("    {class:?},\n")).collect();
    replaced(&with_imports, "Exports of handles and errors", &format!("__all__ += [\n{texts}]\n"))
}

/// The file with another text between the two lines that stand around a generated part.
fn replaced(present: &str, what: &str, text: &str) -> Result<String, String> {
    let (begin, end) = (format!("# {what}, generated: `{COMMAND}`.\n"), "# End of what is generated.\n");
    let parts = present.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(end)?.1)));
    let (before, after) = parts.ok_or_else(|| format!("{PYTHON_EXPORTS} has no lines around its {what}"))?;
    Ok(format!("{before}{begin}{text}{end}{after}"))
}

fn sorted_classes(rows: &[ErrorRow]) -> Vec<&str> {
    let mut classes: Vec<&str> = rows.iter().map(|row| row.class.as_str()).chain(["ResilError"]).collect();
    classes.sort_unstable();
    classes
}

fn node(rows: &[ErrorRow]) -> String {
    let mut text = format!("'use strict';\n/** Every error. {} */\nmodule.exports = [\n", head());
    for row in rows {
        let base = row.node_base.as_ref().map_or(String::new(), |base| format!(", base: {base}"));
        let _ = writeln!(
            text,
            "  {{ code: '{}', name: '{}', httpStatus: {}, grpcStatus: '{}', retryable: {}, meaning: '{}'{base} }},",
            row.code,
            row.class,
            row.http,
            row.grpc,
            row.retryable,
            row.meaning.replace('\'', "\\'"),
        );
    }
    text.push_str("];\n");
    text
}

fn node_exports(rows: &[ErrorRow]) -> String {
    let mut text = format!(
        "/** The classes of errors, for `import`. {} */\nimport errors from './errors.js';\n\nexport const {{\n",
        head()
    );
    for class in sorted_classes(rows) {
        let _ = writeln!(text, "  {class},");
    }
    text.push_str("} = errors;\n");
    text
}

fn node_types(rows: &[ErrorRow]) -> String {
    let mut text = format!(
        "/** What Resil itself reports: one family of errors. {} */\n\
         import type {{ ItemResult }} from './policies.js';\n\n\
         /** The stable names of errors, the same in every language. */\n\
         export type Code =\n",
        head()
    );
    for (index, row) in rows.iter().enumerate() {
        let end = if index + 1 == rows.len() { ";" } else { "" };
        let _ = writeln!(text, "  | '{}'{end}", row.code);
    }
    text.push_str(
        "\n/** What Resil itself reports. What your own functions throw comes through as the same object. */\n\
         export class ResilError extends Error {\n\
         \x20 readonly code: Code;\n\
         \x20 /** Whether the same call may succeed if it is made again, later. */\n\
         \x20 readonly retryable: boolean;\n\
         \x20 /** How long to wait before, if that is known. */\n\
         \x20 readonly retryAfterMs: number | undefined;\n\
         \x20 /** The status to reply with over HTTP. */\n\
         \x20 readonly httpStatus: number;\n\
         \x20 /** The name of the limit, breaker, lock or key it is about, if it is about one. */\n\
         \x20 readonly resource: string | undefined;\n\
         }\n",
    );
    for row in rows {
        let implements = row.node_base.as_ref().map_or(String::new(), |base| format!(" implements {base}"));
        let also = row.node_base.as_ref().map_or(String::new(), |base| format!(" Also a `{base}`."));
        let _ = write!(
            text,
            "\n/** {}{also} */\nexport class {} extends ResilError{implements} {{\n  readonly code: '{}';\n",
            row.meaning, row.class, row.code
        );
        for (field, text_of) in row.fields.iter().filter_map(|field| Some((field.node.as_ref()?, &field.text))) {
            let _ = write!(text, "  /** {text_of} */\n  {field};\n");
        }
        text.push_str("}\n");
    }
    text
}
