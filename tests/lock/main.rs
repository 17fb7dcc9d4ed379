//! Locks and bulkheads: what they promise to one who holds or waits.
