//! The same for work that is done in tasks: time passes in small steps, and after each everybody goes as far as they can.

use std::time::Duration;

use resil::clock::Clock;

/// Lets every task go as far as it can.
pub async fn settle() {
    for _ in 0..60 {
        tokio::task::yield_now().await;
    }
}

pub async fn drive_tasks(clock: &Clock, span: Duration) {
    const STEP: Duration = Duration::from_millis(500);
    settle().await;
    let end = clock.now() + span;
    while clock.now() < end {
        clock.advance(STEP.min(end - clock.now()));
        settle().await;
    }
}
