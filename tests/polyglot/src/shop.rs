//! A shop in Rust: one process of a service whose others are written in Python (`shop.py`) and Node (`shop.mjs`).
//!
//! `POST` to whatever path makes an order, once per `Idempotency-Key` of an `x-user`. Its answer is the body that was sent, with
//! the status that `x-status` asks for (201; 204 has no body), who made it in `x-shop`, a header that is not ASCII, and two cookies.
//! `GET /made` tells how many orders this process made. The port is the only line it writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, Uri};
use axum::routing::{get, post};
use resil::Failure;
use resil::http::{IdempotencyKey, Problem, REPLAYED_HEADER, RecordedResponse, fingerprint, is_final};
use resil::idempotency::IdempotencySettings;
use resil::idempotency::Idempotent;

#[derive(Clone)]
struct Shop {
    orders: Idempotent,
    made: Arc<AtomicU32>,
}

impl Shop {
    async fn order(
        &self,
        method: &str,
        target: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Answer, resil::Error> {
        let header = |name| headers.get(name).map(|value| value.as_bytes());
        let user = String::from_utf8_lossy(header("x-user").unwrap_or_default());
        let key = IdempotencyKey::required(header("idempotency-key"))?.of_tenant(&user);
        let print = fingerprint(method, target, &body);
        let status =
            header("x-status").and_then(|status| std::str::from_utf8(status).ok()?.parse().ok()).unwrap_or(201);
        let run = self.orders.run(&key, print.as_bytes(), async |_run| {
            let made = self.make(status, body);
            // What is not final is an error, which frees the key.
            if is_final(status) { Ok(made.to_bytes()) } else { Err(made) }
        });
        match run.await {
            Ok(outcome) => {
                let kept = outcome.value.and_then(|bytes| RecordedResponse::read(&bytes));
                let kept = kept.ok_or_else(|| resil::Error::Internal("what was kept is no answer".to_owned()))?;
                Ok(Answer { replayed: outcome.replayed, ..Answer::from(kept) })
            }
            Err(Failure::Inner(made)) => Ok(made.into()),
            Err(Failure::Resil(error)) => Err(error),
            Err(Failure::Exhausted { .. }) => Err(resil::Error::Internal("nothing is tried again".to_owned())),
        }
    }

    fn make(&self, status: u16, body: Bytes) -> RecordedResponse {
        self.made.fetch_add(1, Ordering::SeqCst);
        let body = if status == 204 { Bytes::new() } else { body };
        let headers: [(&[u8], &[u8]); 5] = [
            (b"content-type", b"application/octet-stream"),
            (b"x-shop", b"rust"),
            (b"x-odd", b"gr\xfcn, \"2\""),
            (b"set-cookie", b"a=1"),
            (b"set-cookie", b"b=2"),
        ];
        RecordedResponse::new(status, headers, body)
    }
}

struct Answer {
    kept: RecordedResponse,
    replayed: bool,
}

impl From<RecordedResponse> for Answer {
    fn from(kept: RecordedResponse) -> Self {
        Self { kept, replayed: false }
    }
}

async fn order(State(shop): State<Shop>, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response<Body> {
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let mut response = Response::builder();
    let body = match shop.order(method.as_str(), target, &headers, body).await {
        Ok(Answer { kept, replayed }) => {
            response = response.status(kept.status());
            for (name, value) in kept.headers() {
                response = response.header(name, value);
            }
            if replayed {
                response = response.header(REPLAYED_HEADER.0, REPLAYED_HEADER.1);
            }
            kept.body().clone().into()
        }
        Err(error) => {
            let problem = Problem::of(&error);
            response = response.status(problem.status);
            for (name, value) in &problem.headers {
                response = response.header(*name, value);
            }
            problem.body().into()
        }
    };
    response.body(body).unwrap_or_default()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("usage: polyglot-shop URL")?;
    let orders = resil::connect(&url).await?.idempotent("shop", IdempotencySettings::new())?;
    let shop = Shop { orders, made: Arc::default() };
    let made = shop.made.clone();
    let how_many = get(async move || made.load(Ordering::SeqCst).to_string());
    let router = Router::new().route("/made", how_many).route("/{*path}", post(order)).with_state(shop);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?.port());
    Ok(axum::serve(listener, router).await?)
}
