//! The machine's clock, looked at seldom: for a millisecond after a look the processor's counter says how much time has passed.
//!
//! A look costs 25 ns, the counter 12, and a limit in memory has little else to do. How far it can be off:
//! - The counter is measured against the clock when it is first used (half a millisecond, once): in a millisecond it goes wrong by
//!   less than a microsecond, and moments are counted in microseconds.
//! - Threads look for themselves, so two of them may disagree by as much.
//! - A counter that went back, or too far ahead (the thread or the whole machine stood still, or was moved), is not believed: then
//!   the clock is looked at. A counter that suddenly ran at another speed would be believed for a millisecond.
//!
//! A test may drive tokio's own time (`tokio::time::pause`), which no counter follows. That takes tokio's feature `test-util`, and
//! where that is compiled in, the clock is looked at every time.

use std::cell::Cell;
use std::sync::LazyLock;

/// For how long the counter is believed.
const BELIEVED_NS: u64 = 1_000_000;
/// If this passes between a look and the counter, the two say nothing about each other.
const DOUBTED_NS: u64 = 1_000;

static COUNTER: LazyLock<quanta::Clock> = LazyLock::new(quanta::Clock::new);

/// When this thread looked at the clock, by both. Before the first look: later than any.
#[derive(Clone, Copy)]
struct Look {
    counter: u64,
    ns: u64,
}

thread_local! {
    static LAST: Cell<Look> = const { Cell::new(Look { counter: u64::MAX, ns: 0 }) };
}

/// Nanoseconds as `look` has them, which is asked if it was not in the last millisecond.
#[inline(always)]
pub(super) fn now_ns(look: impl FnOnce() -> u64) -> u64 {
    if can_tokio_be_paused() { look() } else { counted_ns(look) }
}

#[inline(always)]
fn counted_ns(look: impl FnOnce() -> u64) -> u64 {
    let counter = COUNTER.raw();
    let last = LAST.get();
    if counter >= last.counter {
        let passed_ns = COUNTER.delta_as_nanos(last.counter, counter);
        if passed_ns < BELIEVED_NS {
            return last.ns + passed_ns;
        }
    }
    look_again(counter, look)
}

#[cold]
fn look_again(before: u64, look: impl FnOnce() -> u64) -> u64 {
    let ns = look();
    let counter = COUNTER.raw();
    // A thread that was stopped in between does not know which of the two is how much later.
    if counter >= before && COUNTER.delta_as_nanos(before, counter) < DOUBTED_NS {
        LAST.set(Look { counter, ns });
    }
    ns
}

/// Whether tokio can be paused: whether its `pause` is there. Only the name itself says so: tokio's, if there is one, comes before
/// the one outside.
#[inline(always)]
fn can_tokio_be_paused() -> bool {
    #[allow(unused_imports)] // where there is none
    use tokio::time::*;
    is_there(&pause)
}

#[allow(dead_code, non_upper_case_globals)] // where there is one, and it has to have that name
const pause: NotThere = NotThere;

struct NotThere;

trait MayBeThere {
    const IS_THERE: bool;
}

impl MayBeThere for NotThere {
    const IS_THERE: bool = false;
}

impl<F: Fn()> MayBeThere for F {
    const IS_THERE: bool = true;
}

fn is_there<T: MayBeThere>(_: &T) -> bool {
    T::IS_THERE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_tests_may_pause_tokio_every_moment_is_looked_up() {
        assert!(can_tokio_be_paused(), "these tests are compiled with tokio's test-util");
        assert_eq!((now_ns(|| 5), now_ns(|| 3)), (5, 3));
    }

    #[test]
    fn counted_moments_are_those_of_the_clock() {
        let beginning = std::time::Instant::now();
        let look = || u64::try_from(beginning.elapsed().as_nanos()).unwrap();
        let (mut looks, mut wrong, mut last) = (0u32, 0u32, 0);
        const MOMENTS: u32 = 300_000;
        for moment in 0..MOMENTS {
            let before = look();
            let counted = counted_ns(|| {
                looks += 1;
                look()
            });
            let after = look();
            let is_right = counted + 2 * DOUBTED_NS >= before && counted <= after + 2 * DOUBTED_NS;
            wrong += u32::from(!is_right);
            assert!(counted + 2 * DOUBTED_NS >= last, "{counted} after {last}");
            last = counted;
            if moment % 50_000 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(3));
            }
        }
        assert_eq!(wrong, 0, "of {MOMENTS}");
        assert!(looks >= 6, "after every sleep the clock is looked at; {looks}");
        assert!(looks < MOMENTS / 2, "nearly all are counted; {looks}");
    }
}
