//! A guard of the SDK's as two share it, the Python object and the block: here, lent to a question, or gone.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::runtime::Generation;

pub struct Slot<G> {
    place: Mutex<Place<G>>,
    generation: Generation,
}

enum Place<G> {
    Here(G),
    Lent,
    Gone,
}

/// Whether it was let go, whatever it is.
pub trait IsGone: Send + Sync {
    /// Also in a child of a fork, which holds nothing of its parent's.
    fn is_gone(&self) -> bool;

    /// Since when it is held.
    fn generation(&self) -> Generation;
}

impl<G: Send> IsGone for Slot<G> {
    fn is_gone(&self) -> bool {
        !self.generation.is_here() || matches!(*self.place.lock(), Place::Gone)
    }

    fn generation(&self) -> Generation {
        self.generation
    }
}

impl<G> Slot<G> {
    pub fn new(guard: G) -> Arc<Self> {
        Arc::new(Self { place: Mutex::new(Place::Here(guard)), generation: Generation::now() })
    }

    /// For good; `None` if it is not here.
    pub fn take(&self) -> Option<G> {
        let mut place = self.place.lock();
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
        match std::mem::replace(&mut *self.place.lock(), Place::Gone) {
            Place::Here(guard) => Some(guard),
            Place::Lent | Place::Gone => None,
        }
    }

    /// Until what is lent is dropped.
    pub fn lend(self: &Arc<Self>) -> Option<Lent<G>> {
        let mut place = self.place.lock();
        match std::mem::replace(&mut *place, Place::Lent) {
            Place::Here(guard) => Some(Lent { home: Arc::clone(self), guard: Some(guard) }),
            elsewhere => {
                *place = elsewhere;
                None
            }
        }
    }
}

impl<G> Drop for Slot<G> {
    fn drop(&mut self) {
        if !self.generation.is_here() {
            std::mem::forget(std::mem::replace(self.place.get_mut(), Place::Gone));
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
        let mut place = self.home.place.lock();
        if matches!(*place, Place::Lent)
            && let Some(guard) = self.guard.take()
        {
            *place = Place::Here(guard);
        }
    }
}
