//! The dashboard: files that were built before and are part of the program. Nothing of the machine's file system is served.

use std::collections::HashMap;
use std::sync::OnceLock;

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Method, StatusCode, Uri, header};
use include_dir::{Dir, include_dir};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::errors::Problem;

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/web/dist");

fn kind(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, ending)| ending) {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "json" => "application/json",
        "webmanifest" => "application/manifest+json",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// The tag of a file, so that a browser that has it gets 304.
fn tag(path: &str, contents: &[u8]) -> String {
    static TAGS: OnceLock<Mutex<HashMap<String, String>>> = OnceLock::new();
    let mut tags = TAGS.get_or_init(Mutex::default).lock();
    let made = || Sha256::digest(contents)[..12].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    tags.entry(path.to_owned()).or_insert_with(|| format!("\"{}\"", made())).clone()
}

/// A file by its exact name. The views of the dashboard are in the fragment, so they are all one page.
pub async fn serve(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    if method != Method::GET && method != Method::HEAD {
        return Problem::not_found("route").into_response();
    }
    let path = match uri.path() {
        "/" => "index.html",
        path => path.trim_start_matches('/'),
    };
    let Some(file) = FILES.get_file(path) else { return Problem::not_found("file").into_response() };
    let tag = tag(path, file.contents());
    let headed = [(header::CACHE_CONTROL, "no-cache".to_owned()), (header::ETAG, tag.clone())];
    if headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        return (StatusCode::NOT_MODIFIED, headed).into_response();
    }
    (headed, [(header::CONTENT_TYPE, kind(path))], file.contents()).into_response()
}
