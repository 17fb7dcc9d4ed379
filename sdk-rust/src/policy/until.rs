//! A call that something may end before it ends by itself: a timeout, a lost permit, the deadline of a shutdown.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::error::{Error, Failure};

pin_project! {
    /// `inner`, unless `end` comes first. What `inner` holds is given back at that moment, and not when the caller gets around to
    /// dropping this.
    pub(crate) struct Until<F, S> {
        #[pin]
        inner: Option<F>,
        #[pin]
        end: Option<S>,
        looks_first: bool,
    }
}

impl<F, S> Until<F, S> {
    /// A call that is ready at the very poll at which `end` comes has made it.
    pub fn new(inner: F, end: Option<S>) -> Self {
        Self { inner: Some(inner), end, looks_first: false }
    }

    /// `inner` is not polled once `end` has come.
    pub fn strictly(inner: F, end: Option<S>) -> Self {
        Self { inner: Some(inner), end, looks_first: true }
    }
}

impl<T, E, F, S> Future for Until<F, S>
where
    F: Future<Output = Result<T, Failure<E>>>,
    S: Future<Output = Error>,
{
    type Output = Result<T, Failure<E>>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        // Polled after its end, there is nothing left to poll.
        let Some(mut inner) = this.inner.as_mut().as_pin_mut() else { return Poll::Pending };
        if !*this.looks_first
            && let Poll::Ready(outcome) = inner.as_mut().poll(context)
        {
            return Poll::Ready(outcome);
        }
        if let Some(end) = this.end.as_pin_mut()
            && let Poll::Ready(error) = end.poll(context)
        {
            this.inner.set(None);
            return Poll::Ready(Err(Failure::Resil(error)));
        }
        if *this.looks_first { inner.poll(context) } else { Poll::Pending }
    }
}
