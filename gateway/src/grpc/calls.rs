//! The calls that are being made, for those who look.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::now_ms;

/// Calls that are shown.
const SHOWN: usize = 200;

/// One call.
#[derive(Debug)]
pub struct CallView {
    pub upstream: String,
    pub policy: String,
    pub method: String,
    pub started_ms: u64,
    pub attempts: AtomicU32,
    pub has_key: bool,
    pub correlation_id: String,
}

/// All that are in flight, and how many there were.
#[derive(Debug, Default)]
pub struct Calls {
    next: AtomicU64,
    in_flight: Mutex<BTreeMap<u64, Arc<CallView>>>,
    pub total: AtomicU64,
    pub failed: AtomicU64,
    pub refused: AtomicU64,
}

impl Calls {
    pub fn begin(self: &Arc<Self>, view: CallView) -> CallEntry {
        let (id, view) = (self.next.fetch_add(1, Relaxed), Arc::new(CallView { started_ms: now_ms(), ..view }));
        self.total.fetch_add(1, Relaxed);
        self.in_flight.lock().insert(id, Arc::clone(&view));
        CallEntry { calls: Arc::clone(self), id, view }
    }

    pub fn count(&self) -> usize {
        self.in_flight.lock().len()
    }

    /// The oldest first.
    pub fn json(&self) -> Vec<Value> {
        let calls: Vec<(u64, Arc<CallView>)> =
            self.in_flight.lock().iter().take(SHOWN).map(|(id, view)| (*id, Arc::clone(view))).collect();
        let row = |(id, view): (u64, Arc<CallView>)| {
            json!({"id": id.to_string(), "upstream": view.upstream, "policy": view.policy, "method": view.method,
                "startedAt": view.started_ms, "attempts": view.attempts.load(Relaxed), "idempotencyKey": view.has_key,
                "correlationId": view.correlation_id})
        };
        calls.into_iter().map(row).collect()
    }
}

/// A call that is being made, until this is dropped.
pub struct CallEntry {
    calls: Arc<Calls>,
    id: u64,
    pub view: Arc<CallView>,
}

impl Drop for CallEntry {
    fn drop(&mut self) {
        self.calls.in_flight.lock().remove(&self.id);
    }
}
