//! Functions of yours that are called when something happens: the same names in Rust, Python and Node.

use std::sync::Arc;
use std::time::Duration;

use super::Primitive;
use super::event::{Event, Interest, Subscribed, subscribe};
use crate::breaker::State;

type Hook = Box<dyn Fn(&Event) + Send + Sync>;

/// What to call when. A hook runs where it happens and must not block; one that panics breaks nothing and is logged once.
///
/// ```
/// use resil::telemetry::Hooks;
///
/// let hooks = Hooks::new()
///     .before_sleep(|name, attempt, delay| println!("{name}: attempt {attempt} failed, the next one in {delay:?}"))
///     .on_away(|address, reason| println!("{address} is away: {reason}"))
///     .install();
/// drop(hooks); // they are called for as long as this is kept
/// ```
#[derive(Default)]
pub struct Hooks {
    only: Option<Arc<str>>,
    all: Vec<Hook>,
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hooks").field("only", &self.only).finish_non_exhaustive()
    }
}

impl Hooks {
    pub fn new() -> Self {
        Self::default()
    }

    /// Only for what has this name. Servers have none, and are heard of all the same.
    #[must_use]
    pub fn only(mut self, name: &str) -> Self {
        self.only = Some(name.into());
        self
    }

    fn with(mut self, hook: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.all.push(Box::new(hook));
        self
    }

    /// A retry is about to wait: name, number of the attempt that failed, delay.
    #[must_use]
    pub fn before_sleep(self, hook: impl Fn(&str, u32, Duration) + Send + Sync + 'static) -> Self {
        self.with(move |event| {
            if let Event::Retry { name, attempt, delay } = event {
                hook(name, *attempt, *delay);
            }
        })
    }

    /// A call is late, and is made once more: name.
    #[must_use]
    pub fn on_hedge(self, hook: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.with(move |event| {
            if let Event::Hedge { name } = event {
                hook(name);
            }
        })
    }

    /// A call was cut off: name, `attempt` or `total`, after how long.
    #[must_use]
    pub fn on_timeout(self, hook: impl Fn(&str, &str, Duration) + Send + Sync + 'static) -> Self {
        self.with(move |event| {
            if let Event::Timeout { name, scope, after } = event {
                hook(name, scope, *after);
            }
        })
    }

    /// A circuit opened, here or in another process: name.
    #[must_use]
    pub fn on_open(self, hook: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.with(move |event| {
            if let Event::Transition { name, new: State::Open, .. } = event {
                hook(name);
            }
        })
    }

    /// A lock or a permit was lost: which of them, its label, why.
    #[must_use]
    pub fn on_lost(self, hook: impl Fn(Primitive, &str, &str) + Send + Sync + 'static) -> Self {
        self.with(move |event| {
            if let Event::Lost { primitive, name, reason } = event {
                hook(*primitive, name, reason);
            }
        })
    }

    /// A worker dropped a message: its name, the id of the message, why.
    #[must_use]
    pub fn on_drop(self, hook: impl Fn(&str, &str, &str) + Send + Sync + 'static) -> Self {
        self.with(move |event| {
            if let Event::Dropped { name, id, reason } = event {
                hook(name, id, reason);
            }
        })
    }

    /// A message of a worker died: its name, the id of the message, how often it died, and why (`retries`, `final`, `crash` or `age`).
    #[must_use]
    pub fn on_dead(self, hook: impl Fn(&str, &str, u32, &str) + Send + Sync + 'static) -> Self {
        self.with(move |event| {
            if let Event::Dead { name, id, deaths, reason } = event {
                hook(name, id, *deaths, reason);
            }
        })
    }

    /// An attempt outlived its ticket, and nobody counted it: the name of the stored policy, how long it took.
    #[must_use]
    pub fn on_outlived(self, hook: impl Fn(&str, Duration) + Send + Sync + 'static) -> Self {
        self.with(move |event| {
            if let Event::Outlived { name, took } = event {
                hook(name, *took);
            }
        })
    }

    /// A server, or the broker of a source or publisher, is away: its address, and why.
    #[must_use]
    pub fn on_away(self, hook: impl Fn(&str, &str) + Send + Sync + 'static) -> Self {
        self.with(move |event| {
            if let Event::Away { address, reason } = event {
                hook(address, reason);
            }
        })
    }

    /// A server, or a broker, is back: its address.
    #[must_use]
    pub fn on_back(self, hook: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.with(move |event| {
            if let Event::Back { address } = event {
                hook(address);
            }
        })
    }

    /// They are called from now on, for as long as what this returns is kept.
    pub fn install(self) -> Subscribed {
        subscribe(Interest::Happenings, move |event| {
            if self.only.is_none() || event.name().is_none() || self.only.as_ref() == event.name() {
                self.all.iter().for_each(|hook| hook(event));
            }
        })
    }
}
