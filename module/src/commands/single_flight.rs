//! `RES.SFLIGHT` and its subcommands.

use resil_core::Span;
use resil_core::limits::WAITERS_CEILING;
use resil_core::single_flight::{
    Abandoned, Flights, LeadRequest, Publication, Published, Seen, abandon, hit, invalidate, join, look, publish, renew,
};
use resil_core::waited::{Decision, Waiting};
use resil_wire::breaker::parse_key;
use resil_wire::reply::Sink;
use resil_wire::single_flight::{
    AbandonCall, Brought, GET_USAGE, HELP, INFO_USAGE, InvalidateCall, JoinCall, PublishCall, RENEW_USAGE,
    write_abandoned, write_info, write_lead, write_published, write_seen,
};

use super::waiting::{bounds, help, read, renew_token, settle_grant, wait_for_reply, waiting};
use crate::call::{Call, Command, Failure};
use crate::info::counters;
use crate::machines::ServerMachine;
use crate::waited_key::Opened;
use crate::{blocked_clients, clock, config, fences, queues, sessions};

pub const PAGE: &str = include_str!("../../../commands/res.sflight.json");

pub struct Join;

impl Command for Join {
    const PAGE: &'static str = include_str!("../../../commands/res.sflight.join.json");
    const WORDS: usize = 2;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let args = call.args();
        let JoinCall { token, lease, wait, bind, .. } = JoinCall::parse(&args, bounds())?;
        let now = clock::now();
        let mut opened = Opened::<Flights>::open(call, call.string(0)?)?;
        // Nearly every call is a hit, and a hit changes nothing.
        if let Some(seen) = hit(opened.state(), now) {
            count(&seen);
            write_seen(&seen, &mut call.reply());
            return Ok(());
        }
        let bind_to = sessions::target(call, bind)?;
        if opened.state().is_nothing() {
            call.require_memory()?;
        }
        let waiting = waiting(call, wait, WAITERS_CEILING);
        let name =
            (bind_to.is_some() || waiting.is_some() || blocked_clients::any_undelivered()).then(|| opened.name());
        let request = LeadRequest { lease, bind_to };
        let joined = opened.step(call, now, &[], |key, setting| join(key, token, request, waiting, setting));
        match joined {
            Decision::Granted(lead) => {
                Flights::counters().granted.add(1);
                settle_grant(name.as_ref(), bind_to, lead.fence, lease, now);
                write_lead(&lead, &mut call.reply());
            }
            Decision::Refused(seen) => {
                count(&seen);
                write_seen(&seen, &mut call.reply());
            }
            // Every request fits a flight.
            Decision::Conflict => {}
            Decision::Queued => {
                Flights::counters().waited.add(1);
                if let (Some(Waiting { id, .. }), Some(name)) = (waiting, name) {
                    wait_for_reply(call, id, name);
                }
            }
        }
        Ok(())
    }
}

fn count(seen: &Seen) {
    match seen {
        Seen::Value { .. } | Seen::Empty { .. } => counters().hits.add(1),
        Seen::Stale { .. } => counters().stale_hits.add(1),
        Seen::Error { .. } | Seen::Busy { .. } | Seen::Miss => Flights::counters().denied.add(1),
    }
}

pub struct Get;

impl Command for Get {
    const PAGE: &'static str = include_str!("../../../commands/res.sflight.get.json");
    const WORDS: usize = 2;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let args = call.args();
        parse_key(&args, GET_USAGE)?;
        let now = clock::now();
        let seen = read::<Flights, _>(call, |flight| look(flight, now))?;
        count(&seen);
        write_seen(&seen, &mut call.reply());
        Ok(())
    }
}

pub struct Publish;

impl Command for Publish {
    const PAGE: &'static str = include_str!("../../../commands/res.sflight.publish.json");
    const WORDS: usize = 2;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let args = call.args();
        let PublishCall { token, ttl, brought, .. } = PublishCall::parse(&args, config::max_value())?;
        let publication = match brought {
            Brought::Value { bytes, stale } => Publication::Value { bytes: bytes.into(), stale },
            Brought::Empty => Publication::Empty,
            Brought::Error { text } => Publication::Error { text: text.into() },
        };
        let opened = Opened::<Flights>::open(call, call.string(0)?)?;
        // Without memory to keep it, those who wait get it all the same. An error is small, and its ttl keeps everybody
        // from loading in vain, one after another.
        let is_small = matches!(publication, Publication::Error { .. });
        let ttl = if !is_small && call.is_short_of_memory() { Span::ZERO } else { ttl };
        let published =
            opened.step(call, clock::now(), &[], |key, setting| publish(key, token, ttl, publication, setting));
        match published {
            Published::Published { .. } => counters().published.add(1),
            Published::Lost(_) => Flights::counters().stale.add(1),
        }
        write_published(&published, &mut call.reply());
        Ok(())
    }
}

pub struct Abandon;

impl Command for Abandon {
    const PAGE: &'static str = include_str!("../../../commands/res.sflight.abandon.json");
    const WORDS: usize = 2;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let args = call.args();
        let AbandonCall { token, retry, .. } = AbandonCall::parse(&args)?;
        let opened = Opened::<Flights>::open(call, call.string(0)?)?;
        let abandoned = opened.step(call, clock::now(), &[], |key, setting| abandon(key, token, retry, setting));
        if matches!(abandoned, Abandoned::Lost(_)) {
            Flights::counters().stale.add(1);
        }
        write_abandoned(&abandoned, &mut call.reply());
        Ok(())
    }
}

pub struct Renew;

impl Command for Renew {
    const PAGE: &'static str = include_str!("../../../commands/res.sflight.renew.json");
    const WORDS: usize = 2;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        renew_token::<Flights>(call, RENEW_USAGE, renew)
    }
}

pub struct Invalidate;

impl Command for Invalidate {
    const PAGE: &'static str = include_str!("../../../commands/res.sflight.invalidate.json");
    const WORDS: usize = 2;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let args = call.args();
        let InvalidateCall { soft, .. } = InvalidateCall::parse(&args)?;
        let opened = Opened::<Flights>::open(call, call.string(0)?)?;
        let anything = opened.step(call, clock::now(), &[], |key, setting| invalidate(key, soft, setting));
        counters().invalidated.add(u64::from(anything));
        call.reply().integer(i64::from(anything));
        Ok(())
    }
}

pub struct Info;

impl Command for Info {
    const PAGE: &'static str = include_str!("../../../commands/res.sflight.info.json");
    const WORDS: usize = 2;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let args = call.args();
        let key = parse_key(&args, INFO_USAGE)?;
        let (now, promoted_at) = (clock::now(), fences::promoted_at());
        let followers = queues::look::<Flights, _>(call.db(), key, |queue| queue.len());
        read::<Flights, _>(call, |flight| write_info(flight, followers, promoted_at, now, &mut call.reply()))
    }
}

pub struct Help;

impl Command for Help {
    const PAGE: &'static str = include_str!("../../../commands/res.sflight.help.json");
    const WORDS: usize = 2;

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        help(call, "RES.SFLIGHT HELP", &HELP)
    }
}
