//! How many are inside, counted where they go in and out: each thread in cells of its own, with plain writes.
//!
//! # The state
//! Two numbers for each of the first [`SEATS`] threads, how many came in there and how many went out, which only grow and which
//! only that thread writes. (A call may come in on one thread and go out on another: only the sums mean anything.) All other
//! threads share two more, with atomic additions. A thread's seat is given back when it ends, and the next thread goes on
//! counting in it.
//!
//! # Why not one atomic number
//! Two atomic operations were a third of what a closed breaker costs, and on many cores all callers of a client would wait for
//! one cache line.
//!
//! # What has to be known of plain writes
//! They are seen by other cores, if late: cores keep them back for less than a microsecond. Whoever needs to know of all that
//! happened before something waits for [`SEEN_BY_ALL`] after it.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering, compiler_fence};
use std::time::Duration;

use parking_lot::Mutex;

/// Threads that count for themselves.
const SEATS: usize = 32;

/// After this everybody has seen what was written before: a thousand times what it takes.
pub(super) const SEEN_BY_ALL: Duration = Duration::from_millis(1);

/// On cache lines of its own: no other thread writes there.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Turnstile {
    came_in: AtomicUsize,
    went_out: AtomicUsize,
}

#[derive(Debug, Default)]
pub(super) struct Crowd {
    seats: [Turnstile; SEATS],
    standing: Turnstile,
}

impl Crowd {
    #[inline]
    pub fn come_in(&self) {
        self.many_come_in(1);
    }

    #[inline]
    pub fn many_come_in(&self, many: usize) {
        match seat() {
            Some(seat) => count_alone(&self.seats[seat].came_in, many),
            None => drop(self.standing.came_in.fetch_add(many, Ordering::SeqCst)),
        }
        // What is looked at next is looked at after this was written.
        compiler_fence(Ordering::SeqCst);
    }

    #[inline]
    pub fn go_out(&self) {
        self.many_go_out(1);
    }

    #[inline]
    pub fn many_go_out(&self, many: usize) {
        match seat() {
            Some(seat) => count_alone(&self.seats[seat].went_out, many),
            None => drop(self.standing.went_out.fetch_add(many, Ordering::SeqCst)),
        }
        compiler_fence(Ordering::SeqCst);
    }

    /// How many are inside. Never too few of those whose coming in was seen.
    pub fn inside(&self) -> usize {
        let all = || self.seats.iter().chain([&self.standing]);
        // In this order: whoever comes and goes in between is counted as inside, and not the other way round.
        let went_out = all().fold(0usize, |sum, each| sum.wrapping_add(each.went_out.load(Ordering::SeqCst)));
        let came_in = all().fold(0usize, |sum, each| sum.wrapping_add(each.came_in.load(Ordering::SeqCst)));
        came_in.wrapping_sub(went_out)
    }
}

/// So many more, in a number that nobody else writes.
#[inline]
fn count_alone(number: &AtomicUsize, many: usize) {
    // What was done inside comes before going out.
    number.store(number.load(Ordering::Relaxed).wrapping_add(many), Ordering::Release);
}

/// Seats that were given back, and how many were ever given.
static FREE: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));

/// Not asked for one yet.
const UNKNOWN: usize = usize::MAX;
/// There was none.
const NONE: usize = usize::MAX - 1;

struct Seat(Cell<usize>);

impl Drop for Seat {
    fn drop(&mut self) {
        let seat = self.0.replace(NONE);
        if seat < SEATS {
            FREE.lock().0.push(seat);
        }
    }
}

thread_local! {
    static SEAT: Seat = const { Seat(Cell::new(UNKNOWN)) };
}

/// This thread's own. `None`: it has none, or it is ending.
#[inline]
fn seat() -> Option<usize> {
    let seat = SEAT.try_with(|seat| seat.0.get()).unwrap_or(NONE);
    if seat < SEATS { Some(seat) } else { sit_down(seat) }
}

#[cold]
fn sit_down(seat: usize) -> Option<usize> {
    if seat == NONE {
        return None;
    }
    let mut free = FREE.lock();
    let given = free.0.pop().or_else(|| {
        free.1 += 1;
        Some(free.1 - 1).filter(|seat| *seat < SEATS)
    });
    drop(free);
    // A thread that finds none stays without: seats are for those who came first, workers of a runtime.
    SEAT.with(|seat| seat.0.set(given.unwrap_or(NONE)));
    given
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn whoever_comes_in_on_one_thread_may_go_out_on_another() {
        let crowd = Arc::new(Crowd::default());
        for _ in 0..3 {
            crowd.come_in();
        }
        let other = Arc::clone(&crowd);
        std::thread::spawn(move || {
            other.go_out();
            other.come_in();
            other.go_out();
        })
        .join()
        .unwrap();
        assert_eq!(crowd.inside(), 2);
        crowd.go_out();
        crowd.go_out();
        assert_eq!(crowd.inside(), 0);
    }

    #[test]
    fn nobody_is_lost_however_many_threads_there_are_and_whenever_they_end() {
        let crowd = Arc::new(Crowd::default());
        for _ in 0..3 {
            let threads: Vec<_> = (0..SEATS * 2)
                .map(|_| {
                    let crowd = Arc::clone(&crowd);
                    std::thread::spawn(move || {
                        for _ in 0..1_000 {
                            crowd.come_in();
                            crowd.come_in();
                            crowd.go_out();
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(crowd.inside(), SEATS * 2 * 1_000);
            (0..SEATS * 2 * 1_000).for_each(|_| crowd.go_out());
            assert_eq!(crowd.inside(), 0);
        }
    }
}
