//! GCRA beside an independent token bucket: after every step of every schedule both say the same.

use proptest::collection::vec;
use proptest::prelude::*;
use resil_core::rate_limit::{Ask, Quota, Reading, Wait};

use crate::bucket::{Buckets, Rate, Reply, Request, Row};
use crate::schedule::{Called, Event, Key, anything, quota, unsteady};
use crate::seed;

pub fn rate(quota: &Quota) -> Rate {
    Rate { cells: quota.limit() as i64, period_us: quota.period().as_us(), capacity: quota.capacity() as i64 }
}

pub fn request(ask: Ask) -> Request {
    match ask {
        Ask::Take(cells) => Request::Take(cells as i64),
        Ask::UpTo(cells) => Request::UpTo(cells as i64),
        Ask::Reserve { cells, within } => Request::Reserve { cells: cells as i64, within_us: within.as_us() },
        Ask::Refund(cells) => Request::Refund(cells as i64),
        Ask::Peek => Request::Peek,
    }
}

pub fn row(reading: &Reading) -> Row {
    Row {
        capacity: reading.capacity as i64,
        remaining: reading.remaining as i64,
        wait_us: match reading.retry_after {
            Wait::For(span) => Some(span.as_us()),
            Wait::Never => None,
        },
        reset_us: reading.reset_after.as_us(),
    }
}

fn reply(called: &Called) -> Reply {
    Reply {
        granted: called.verdict.granted as i64,
        rows: called.verdict.tiers.iter().map(row).collect(),
        stored: called.changed,
    }
}

/// Plays `events` on both; `configurations` are lists of tiers.
pub fn play_both(configurations: &[Vec<Quota>], events: &[Event]) -> Result<(), TestCaseError> {
    let mut key = Key::new();
    let mut model = Buckets::default();
    for event in events {
        let quotas = event.config.get(configurations);
        let rates: Vec<Rate> = quotas.iter().map(rate).collect();
        key.elapse(event, &quotas[0]);
        for _ in 0..1 + event.reply_lost as usize {
            let ask = event.want.ask(&quotas[0]);
            let before = key.clone();
            let expected = model.call(&rates, request(ask), key.now_us);
            let called = key.call(quotas, ask);
            prop_assert_eq!(reply(&called), expected, "{:?} of {:?} on {:?}", ask, quotas, before);
            let periods: Vec<i64> = key.tiers.iter().map(|tier| tier.quota().period().as_us()).collect();
            prop_assert_eq!(periods, model.periods(), "tiers stored after {:?} of {:?} on {:?}", ask, quotas, before);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(seed::config())]

    // Property 12: a bucket never holds more than its capacity, refills at its rate, and pays one cell per call.
    #[test]
    fn a_token_bucket_pays_per_request_and_refills_at_rate(
        quota in quota(),
        events in unsteady(anything()),
    ) {
        play_both(&[vec![quota]], &events)?;
    }

    #[test]
    fn a_changed_limit_carries_the_debt_in_cells(
        quotas in vec(quota(), 2..=4),
        events in unsteady(anything()),
    ) {
        let configurations: Vec<Vec<Quota>> = quotas.iter().map(|quota| vec![*quota]).collect();
        play_both(&configurations, &events)?;
    }
}
