//! A guard of the SDK's as two share it, the Python object and the block: here, lent to a question, or gone.

use std::sync::Arc;

use parking_lot::Mutex;

pub struct Slot<G>(Mutex<Place<G>>);

enum Place<G> {
    Here(G),
    Lent,
    Gone,
}

/// Whether it was let go, whatever it is.
pub trait IsGone: Send + Sync {
    fn is_gone(&self) -> bool;
}

impl<G: Send> IsGone for Slot<G> {
    fn is_gone(&self) -> bool {
        matches!(*self.0.lock(), Place::Gone)
    }
}

impl<G> Slot<G> {
    pub fn new(guard: G) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Place::Here(guard))))
    }

    /// For good; `None` if it is not here.
    pub fn take(&self) -> Option<G> {
        let mut place = self.0.lock();
        match std::mem::replace(&mut *place, Place::Gone) {
            Place::Here(guard) => Some(guard),
            elsewhere => {
                *place = elsewhere;
                None
            }
        }
    }

    /// For good; one that is lent is let go in the background when it comes back.
    pub fn give_up(&self) -> Option<G> {
        match std::mem::replace(&mut *self.0.lock(), Place::Gone) {
            Place::Here(guard) => Some(guard),
            Place::Lent | Place::Gone => None,
        }
    }

    /// Until what is lent is dropped.
    pub fn lend(self: &Arc<Self>) -> Option<Lent<G>> {
        let mut place = self.0.lock();
        match std::mem::replace(&mut *place, Place::Lent) {
            Place::Here(guard) => Some(Lent { home: Arc::clone(self), guard: Some(guard) }),
            elsewhere => {
                *place = elsewhere;
                None
            }
        }
    }
}

/// Goes home when it is dropped.
pub struct Lent<G> {
    home: Arc<Slot<G>>,
    guard: Option<G>,
}

impl<G> Lent<G> {
    /// Always there.
    pub fn guard(&self) -> Option<&G> {
        self.guard.as_ref()
    }
}

impl<G> Drop for Lent<G> {
    fn drop(&mut self) {
        let mut place = self.home.0.lock();
        if matches!(*place, Place::Lent)
            && let Some(guard) = self.guard.take()
        {
            *place = Place::Here(guard);
        }
    }
}
