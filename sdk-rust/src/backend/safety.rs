//! How safe a change must be before it counts: on how many replicas, and on the disk of the primary.

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Safety {
    pub replicas: WantedReplicas,
    /// The primary has it on its disk: WAITAOF.
    pub fsync: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WantedReplicas {
    AtLeast(u32),
    /// One, if the primary has any.
    OneIfAny,
}

/// What was reached in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SafetyReached {
    /// How many replicas were waited for.
    pub wanted: u32,
    /// How many of them have it.
    pub replicas: u32,
    /// The disk of the primary has it. False if nobody asked.
    pub is_on_disk: bool,
}

impl Safety {
    pub fn at_least(replicas: u32) -> Self {
        Self { replicas: WantedReplicas::AtLeast(replicas), fsync: false }
    }

    /// Whether there is anything to wait for.
    pub fn is_asked(self) -> bool {
        self.fsync || self.replicas != WantedReplicas::AtLeast(0)
    }

    /// What a backend without replicas and disks reaches.
    pub fn alone(self) -> SafetyReached {
        let wanted = match self.replicas {
            WantedReplicas::AtLeast(count) => count,
            WantedReplicas::OneIfAny => 0,
        };
        SafetyReached { wanted, replicas: 0, is_on_disk: false }
    }
}
