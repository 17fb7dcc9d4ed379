//! A shop in Rust: one process of a service whose others are written in Python (`shop.py`) and Node (`shop.mjs`). It is axum, and the
//! middleware for `Idempotency-Key`.
//!
//! `POST` to whatever path makes an order, once per `Idempotency-Key` of an `x-user`. Its reply is the body that was sent, with
//! the status that `x-status` asks for (201; 204 has no body), who made it in `x-shop`, a header that is not ASCII, and two cookies.
//! `GET /made` tells how many orders this process made. The port is the only line it writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Response};
use axum::routing::{get, post};
use resil::http::{IdempotencyLayer, header_text};
use resil::idempotency::IdempotencySettings;

type Made = Arc<AtomicU32>;

async fn order(State(made): State<Made>, headers: HeaderMap, body: Bytes) -> Response<Body> {
    made.fetch_add(1, Ordering::SeqCst);
    let status = headers.get("x-status").and_then(|status| status.to_str().ok()?.parse().ok()).unwrap_or(201);
    let response = Response::builder()
        .status(status)
        .header("content-type", "application/octet-stream")
        .header("x-shop", "rust")
        .header("x-odd", &b"gr\xfcn, \"2\""[..])
        .header("set-cookie", "a=1")
        .header("set-cookie", "b=2");
    response.body(if status == 204 { Body::empty() } else { body.into() }).unwrap_or_default()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("usage: polyglot-shop URL")?;
    let orders = resil::connect(&url).await?.idempotent("shop", IdempotencySettings::new())?;
    let made = Made::default();
    let counted = made.clone();
    let router = Router::new()
        .route("/made", get(async move || counted.load(Ordering::SeqCst).to_string()))
        .route("/{*path}", post(order))
        .with_state(made)
        .layer(IdempotencyLayer::new(orders, |request| header_text(request, "x-user")).required());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?.port());
    Ok(axum::serve(listener, router).await?)
}
