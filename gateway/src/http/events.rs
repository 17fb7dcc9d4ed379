//! `/api/events`: everything that happens, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::{HeaderMap, StatusCode, header};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;

use super::acts::Looker;
use crate::errors::Problem;
use crate::feed::Happening;
use crate::now_ms;
use crate::run::Gateway;

/// A comment keeps proxies from closing a silent stream.
const BEAT: Duration = Duration::from_secs(15);

fn line(happening: &Happening) -> Bytes {
    format!("id: {}\nevent: {}\ndata: {}\n\n", happening.id, happening.kind, happening.data).into()
}

fn unnumbered(kind: &str, data: &serde_json::Value) -> Bytes {
    format!("event: {kind}\ndata: {data}\n\n").into()
}

pub async fn stream(State(gateway): State<Arc<Gateway>>, _: Looker, headers: HeaderMap) -> Response {
    let Some(place) = gateway.feed.place() else {
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, "OVERLOADED", "Too many", "too many are watching")
            .into_response();
    };
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok()?.parse().ok());
    let (missed, receiver) = gateway.feed.since(last);
    let hello = json!({"instance": gateway.instance, "version": env!("CARGO_PKG_VERSION"), "serverNow": now_ms()});
    let mut begin = vec![unnumbered("hello", &hello)];
    match missed {
        Some(missed) => begin.extend(missed.iter().map(line)),
        None => begin.push(unnumbered("gap", &json!({"reason": "what happened meanwhile is not remembered"}))),
    }
    let state = (begin.into_iter(), receiver, gateway.stop.clone(), place);
    let lines = stream::unfold(state, |(mut begin, mut receiver, stop, place)| async move {
        let next = match begin.next() {
            Some(next) => next,
            None => tokio::select! {
                happening = receiver.recv() => match happening {
                    Ok(happening) => line(&happening),
                    // It has not read for long: it fetches what it shows.
                    Err(RecvError::Lagged(_)) => unnumbered("gap", &json!({"reason": "this reader was too slow"})),
                    Err(RecvError::Closed) => return None,
                },
                () = tokio::time::sleep(BEAT) => Bytes::from_static(b": beat\n\n"),
                () = stop.cancelled() => return None,
            },
        };
        Some((Ok::<_, Infallible>(next), (begin, receiver, stop, place)))
    });
    let headed = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (headed, [("x-accel-buffering", "no")], Body::from_stream(lines)).into_response()
}
