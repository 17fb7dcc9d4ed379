//! Calls of `RES.LIST` and `RES.TOP`: a state belongs to its kind, which no page can say.

use proptest::prelude::*;
use resil_wire::command::Command;
use resil_wire::overview::{OverviewCall, OverviewKind, TopCall, TopKind};

pub fn calls() -> Vec<BoxedStrategy<Command<'static>>> {
    let kind = prop::sample::select(OverviewKind::ALL.to_vec());
    let list = kind.prop_flat_map(|kind| {
        let state = prop::option::of(prop::sample::select(kind.states().collect::<Vec<_>>()));
        let pattern = prop::option::of(prop::sample::select(vec![&b"*"[..], b"a?[b-c]*", b"\\*"]));
        (state, pattern, 0..=i64::MAX.unsigned_abs(), 1..=1_000_u32)
            .prop_map(move |(state, pattern, cursor, limit)| OverviewCall { kind, state, pattern, cursor, limit })
    });
    let top = (prop::sample::select(TopKind::ALL.to_vec()), 1..=128_u32)
        .prop_map(|(kind, limit)| Command::Top(TopCall { kind, limit }));
    vec![list.prop_map(Command::List).boxed(), top.boxed()]
}
