//! Which locks the present task holds, from the inside out.
//!
//! A chain of frames, each of which is seen only by the future it was put around: two branches of a `join!` do not see
//! each other's locks, and a spawned task sees none.

use std::sync::Arc;

use crate::client::Client;
use crate::holding::{Holding, HoldingKind};

tokio::task_local! {
    static INNERMOST: Arc<HeldFrame>;
}

struct HeldFrame {
    holding: Arc<Holding>,
    outer: Option<Arc<HeldFrame>>,
}

/// Runs `work`, for which `holding` counts as held.
pub(super) async fn holding<R: Future>(holding: &Arc<Holding>, work: R) -> R::Output {
    let outer = INNERMOST.try_with(Arc::clone).ok();
    INNERMOST.scope(Arc::new(HeldFrame { holding: Arc::clone(holding), outer }), work).await
}

/// The lock `name`, if this task holds it by the same client.
pub(super) fn held(client: &Client, name: &str) -> Option<Arc<Holding>> {
    INNERMOST
        .try_with(|innermost| {
            let mut frame = Some(innermost);
            while let Some(HeldFrame { holding, outer }) = frame.map(|frame| &**frame) {
                let is_it = holding.kind == HoldingKind::Lock && *holding.name == *name;
                if is_it && std::ptr::eq(holding.client.inner(), client.inner()) {
                    return Some(Arc::clone(holding));
                }
                frame = outer.as_ref();
            }
            None
        })
        .ok()
        .flatten()
}
