//! What is asked of a ledger, as short as the sentences need it.

use resil_core::dead_letters::{Class, Counting, RedriveFilter, RedriveRequest};

use super::key::{Key, MS, id_of};

/// A FAIL. What is not set is as if it was not said.
#[derive(Debug, Clone)]
pub struct Fault {
    pub id: String,
    pub payload: Option<Vec<u8>>,
    pub reference: Option<Vec<u8>>,
    pub kind: &'static str,
    pub aggregate: String,
    pub error: String,
    pub fence: Option<u64>,
    pub class: Option<Class>,
    pub group: Option<&'static str>,
    pub after: Option<i64>,
    pub prior: u32,
    pub counting: Counting,
    pub random: u64,
}

/// `id` failed. Its payload is named after it, and its delays are the longest.
pub fn fault(id: &str) -> Fault {
    Fault {
        id: id.into(),
        payload: Some(format!("body of {id}").into_bytes()),
        reference: None,
        kind: "order",
        aggregate: String::new(),
        error: "no luck".into(),
        fence: None,
        class: None,
        group: None,
        after: None,
        prior: 0,
        counting: Counting::Counted,
        random: u64::MAX,
    }
}

impl Fault {
    pub fn by(self, fence: u64) -> Self {
        Self { fence: Some(fence), ..self }
    }

    pub fn payload(self, payload: Option<&str>) -> Self {
        Self { payload: payload.map(|payload| payload.as_bytes().to_vec()), ..self }
    }

    pub fn reference(self, reference: &str) -> Self {
        Self { reference: Some(reference.as_bytes().to_vec()), payload: None, ..self }
    }

    pub fn kind(self, kind: &'static str) -> Self {
        Self { kind, ..self }
    }

    pub fn of(self, aggregate: &str) -> Self {
        Self { aggregate: aggregate.into(), ..self }
    }

    pub fn error(self, error: &str) -> Self {
        Self { error: error.into(), ..self }
    }

    pub fn class(self, class: Class) -> Self {
        Self { class: Some(class), ..self }
    }

    pub fn group(self, group: &'static str) -> Self {
        Self { group: Some(group), ..self }
    }

    pub fn after(self, after: i64) -> Self {
        Self { after: Some(after), ..self }
    }

    pub fn prior(self, prior: u32) -> Self {
        Self { prior, ..self }
    }

    pub fn finally(self) -> Self {
        Self { counting: Counting::Final, ..self }
    }

    pub fn not_counted(self) -> Self {
        Self { counting: Counting::NotCounted, ..self }
    }

    pub fn random(self, random: u64) -> Self {
        Self { random, ..self }
    }
}

/// A REDRIVE of everything that a case covers, without a trial of the first ones.
pub fn redrive(case: u32) -> RedriveRequest {
    let filter = RedriveFilter::default();
    RedriveRequest { case, filter, count: None, rate: None, first: 1_000, oneshot: false, dry_run: false }
}

/// The group of every [`fault`].
pub const GROUP: &str = "order/no luck";

/// `count` entries are dead, and a case is open: their ids.
pub fn dead_case(key: &mut Key, count: usize) -> (u32, Vec<String>) {
    let ids: Vec<String> = (0..count).map(|at| format!("m{at}")).collect();
    for id in &ids {
        key.dies(&fault(id).finally());
        key.now += MS;
    }
    (key.diagnose(&[GROUP]), ids)
}

/// Takes and resolves what a redrive gives, until it gives nothing more; when each was given.
pub fn drain(key: &mut Key, until: i64) -> Vec<i64> {
    let mut given = Vec::new();
    while key.now < until {
        let taken = key.take(&format!("drain {}", key.now), 10);
        for entry in &taken {
            given.push(key.now);
            key.done(&id_of(entry), entry.fence);
        }
        key.later(100 * MS);
    }
    given
}
