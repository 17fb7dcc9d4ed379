//! Dead letters: what RES.DLQ promises on a real server.
//!
//! `scene.rs` of the target `lock` has the server whose clock stands and the callers that wait; `letters.rs` has what is said here
//! again and again. The rest is one file per concern.

#[allow(dead_code)]
#[path = "../lock/async_client.rs"]
mod async_client;
#[allow(dead_code)]
#[path = "../breaker/driven.rs"]
mod driven;
#[allow(dead_code)]
#[path = "../lock/hearing.rs"]
mod hearing;
#[allow(dead_code)]
#[path = "../lock/scene.rs"]
mod scene;
#[allow(dead_code)]
#[path = "../abuse/engine/seed.rs"]
mod seed;

mod letters;

mod access;
mod binding;
mod capacity;
mod cluster;
mod copies;
mod events;
mod governing;
mod leaving;
mod malformed;
mod promotion;
mod replies;
mod waiting;
mod walk;
