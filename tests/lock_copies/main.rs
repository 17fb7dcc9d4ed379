//! The keys of locks and bulkheads: files, replicas, failovers, clusters, and every way a key can leave.
