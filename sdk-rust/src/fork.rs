//! What a child of a fork must not have in common with its parent, nor with its siblings.
//!
//! A fork copies the memory of the process, but only the thread that forks. Clients of the parent cannot be used in the child: the
//! threads behind them are gone. New ones can, if two things are made anew:
//! - Random numbers. Owners and tokens are drawn at random. A generator that was copied draws the same ones again, and two children with
//!   the same owner would both hold one lock.
//! - Stores of `memory://name`. A thread of the parent may have had one locked.

/// To be called in the child, by the thread that forked. The SDKs of other languages do so by themselves.
pub fn after_fork() {
    if rand::rng().reseed().is_err() {
        // Nothing can be distinguished without random numbers, and nobody is there to be notified.
        std::process::abort();
    }
    crate::backend::memory::after_fork();
}
