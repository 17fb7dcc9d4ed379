//! A batch of work that ends early when its time is used up.

/// Does `one` up to `most` times, until it says that there is nothing left, or the time is used up. Returns how often.
///
/// Once is done in any case: the caller takes 0 for the end of the work, and the system may take the processor away, and so
/// use up the time, before anything was done.
pub fn run(most: usize, mut is_time_up: impl FnMut() -> bool, mut one: impl FnMut() -> bool) -> usize {
    (0..most).take_while(|done| (*done == 0 || !is_time_up()) && one()).count()
}
