//! A command that is seen through to its reply, even if its caller stops waiting.
//!
//! Some commands must not be left half-way: a booking whose reply nobody reads cannot be given back, a report that is
//! sent twice counts twice. [`Finishing`] is awaited like any future; dropped before its end, it goes on in the background.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

use crate::client::Client;

pub(crate) struct Finishing<T: 'static> {
    future: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    client: Client,
}

impl<T: 'static> Finishing<T> {
    pub fn new(client: &Client, future: impl Future<Output = T> + Send + 'static) -> Self {
        Self { future: Some(Box::pin(future)), client: client.clone() }
    }
}

impl<T: 'static> Future for Finishing<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(future) = &mut self.future else { return Poll::Pending };
        let output = std::task::ready!(future.as_mut().poll(context));
        self.future = None;
        Poll::Ready(output)
    }
}

impl<T: 'static> Drop for Finishing<T> {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            in_background(&self.client, async move {
                future.await;
            });
        }
    }
}

/// Runs `work` beside the callers: on their runtime, since it may call listeners of theirs, or where there is none on the client's.
pub(crate) fn in_background(client: &Client, work: impl Future<Output = ()> + Send + 'static) {
    if let Some(runtime) = Handle::try_current().ok().or_else(|| client.background()) {
        client.inner().tasks.spawn_on(work, &runtime);
    }
}
