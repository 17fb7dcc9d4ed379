//! Several places at once, for who runs several calls between two looks at the outside, as a thread of JavaScript does
//! within one turn of its loop.
//!
//! # What is promised
//! - They are places as all others: never more than there are, and none while somebody waits for one.
//! - A place whose call is over counts as completed. One that was not needed counts as nothing.
//! - Whoever waits by then is handed each place that is given back.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use super::{Compartment, LocalBulkhead, ONE_ACTIVE, active, queued};

impl LocalBulkhead {
    /// Up to `most` places if there are any now and nobody waits for one. Who gets none is not counted as refused.
    pub fn try_acquire_many(&self, most: u32) -> Option<BulkheadPlaces> {
        let mut places = BulkheadPlaces { compartment: Arc::clone(&self.compartment), count: 0 };
        (places.more(most) > 0).then_some(places)
    }
}

/// Some places in a bulkhead. Dropped, the calls that had them are over.
#[derive(Debug)]
#[must_use = "the places are given back when this is dropped"]
pub struct BulkheadPlaces {
    compartment: Arc<Compartment>,
    count: u32,
}

impl BulkheadPlaces {
    /// How many places it holds.
    pub fn len(&self) -> u32 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Up to `most` more, under the same conditions. How many.
    pub fn more(&mut self, most: u32) -> u32 {
        let got = self.compartment.enter_many(most);
        self.count += got;
        got
    }

    /// So many calls are over; their places are free.
    pub fn leave(&mut self, calls: u32) {
        let calls = calls.min(self.count);
        self.count -= calls;
        self.compartment.leave_many(calls, calls);
    }

    /// So many places were not needed: no call was made.
    pub fn give_back(&mut self, places: u32) {
        let places = places.min(self.count);
        self.count -= places;
        self.compartment.leave_many(places, 0);
    }
}

impl Drop for BulkheadPlaces {
    fn drop(&mut self) {
        self.leave(self.count);
    }
}

impl Compartment {
    /// As many places as are free, up to `most`, if nobody waits.
    fn enter_many(&self, most: u32) -> u32 {
        let free = |state| if queued(state) == 0 { most.min(self.max - active(state)) } else { 0 };
        let entered = self.state.fetch_update(AcqRel, Acquire, |state| match free(state) {
            0 => None,
            got => Some(state + u64::from(got) * ONE_ACTIVE),
        });
        let got = entered.map_or(0, free);
        if got > 0 {
            self.active_gauge.increment(f64::from(got));
        }
        got
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::policy::BulkheadMetrics;

    fn numbers(metrics: BulkheadMetrics) -> (u32, u32, u64, u64) {
        (metrics.active, metrics.queued, metrics.completed, metrics.rejected)
    }

    #[test]
    fn several_places_are_never_more_than_are_free_and_only_calls_count() {
        let bulkhead = LocalBulkhead::new("b", 5, 0).unwrap();
        let one = bulkhead.try_acquire().unwrap();
        let mut places = bulkhead.try_acquire_many(10).expect("four are free");
        assert_eq!((places.len(), places.more(1)), (4, 0));
        assert!(bulkhead.try_acquire_many(1).is_none());
        assert_eq!(numbers(bulkhead.metrics()), (5, 0, 0, 0), "whoever gets no place here is not refused");
        places.give_back(1);
        places.leave(2);
        assert_eq!(numbers(bulkhead.metrics()), (2, 0, 2, 0));
        assert_eq!(places.more(9), 3);
        drop((one, places));
        assert_eq!(numbers(bulkhead.metrics()), (0, 0, 7, 0));
    }

    #[tokio::test]
    async fn whoever_waits_gets_the_places_that_are_given_back_and_nobody_overtakes() {
        let bulkhead = LocalBulkhead::new("b", 2, 2).unwrap();
        let mut places = bulkhead.try_acquire_many(2).expect("free");
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let bulkhead = bulkhead.clone();
                tokio::spawn(async move { bulkhead.acquire().await })
            })
            .collect();
        while bulkhead.metrics().queued < 2 {
            tokio::task::yield_now().await;
        }
        places.give_back(1);
        assert_eq!(places.more(1), 0, "somebody waits");
        places.leave(1);
        for waiter in waiting {
            let permit = tokio::time::timeout(Duration::from_secs(10), waiter).await.unwrap();
            drop(permit.unwrap().expect("a place"));
        }
        assert_eq!(numbers(bulkhead.metrics()), (0, 0, 3, 0));
    }
}
