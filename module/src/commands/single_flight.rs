//! `RES.SFLIGHT` and its subcommands.

use std::sync::LazyLock;

use redis_module::raw;
use resil_core::generations::{self, GenerationEdits, Generations, Leaves};
use resil_core::limits::{MGET_BYTES_MAX, WAITERS_CEILING};
use resil_core::single_flight::{
    Abandoned, Flights, LeadRequest, Publication, Published, Seen, UnderName, abandon, hit, invalidate, join, look,
    publish, renew, set,
};
use resil_core::waited::{Decision, Floor};
use resil_core::{Instant, Span, Step};
use resil_wire::Refused;
use resil_wire::holding::write_given_up;
use resil_wire::idempotency::TokenRenewCall;
use resil_wire::reply::Sink;
use resil_wire::single_flight::{
    AbandonCall, Brought, ClearCall, FlightGetCall, FlightMgetCall, InvalidateCall, JoinCall, Joined as JoinedReply,
    PublishCall, Published as PublishedReply, SeenMany, SetCall, write_info,
};

use super::idempotency::renew_token;
use super::reading::{read, read_at};
use crate::apply::{edit_plain, publish_plain};
use crate::call::{Call, Failure};
use crate::datatype::Value;
use crate::datatype::boxed::Boxed;
use crate::edge::replication::notify;
use crate::info::counters;
use crate::key::Key;
use crate::machines::ServerMachine;
use crate::waited_key::{Asking, Opened, waiting};
use crate::{clock, cluster, fences, queues, server, sessions};

pub fn sflight_join(call: &Call<'_>, request: JoinCall<'_>) -> Result<(), Failure> {
    let JoinCall { key, token, lease, under, early, wait, bind } = request;
    let now = clock::now();
    let opened = Opened::<Flights>::open(call, call.string(0)?)?;
    let mut cache_name = CacheName::open(call, key, under, Key::open_to_write)?;
    // Nearly every call is a hit, and a hit changes nothing.
    if let Some(seen) = hit(opened.state(), early, cache_name.as_ref().map(CacheName::known), now) {
        count(&seen);
        JoinedReply::from(seen).write(&mut call.reply());
        return Ok(());
    }
    let bind_to = sessions::target(call, bind)?;
    if opened.state().is_nothing() {
        call.require_memory()?;
    }
    let waiting = waiting(call, wait, WAITERS_CEILING)?;
    if let Some(cache_name) = &mut cache_name {
        cache_name.begin(call, now)?;
    }
    let known = cache_name.as_ref().map(CacheName::known);
    let request = LeadRequest { lease, bind_to, generation: known.map_or(0, Generations::current), early };
    let asking = Asking { wait, waiting, bind_to, lease };
    let joined = opened.ask(call, now, asking, |key, setting| join(key, token, request, waiting, known, setting));
    match joined {
        Decision::Granted(lead) => {
            Flights::counters().granted.add(1);
            JoinedReply::from(lead).write(&mut call.reply());
        }
        Decision::Refused(seen) => {
            count(&seen);
            JoinedReply::from(seen).write(&mut call.reply());
        }
        // Every request fits a flight.
        Decision::Queued | Decision::Conflict => {}
    }
    Ok(())
}

fn count(seen: &Seen) {
    match seen {
        Seen::Value { .. } | Seen::Empty { .. } => counters().hits.add(1),
        Seen::Stale { .. } => counters().stale_hits.add(1),
        Seen::Error { .. } | Seen::Busy { .. } | Seen::Miss => Flights::counters().denied.add(1),
    }
}

pub fn sflight_get(call: &Call<'_>, FlightGetCall { key, under }: FlightGetCall<'_>) -> Result<(), Failure> {
    let now = clock::now();
    let cache_name = CacheName::open(call, key, under, Key::open_to_read)?;
    let known = cache_name.as_ref().map(CacheName::known);
    let seen = read::<Flights, _>(call, |flight| look(flight, known, now))?;
    count(&seen);
    JoinedReply::from(seen).write(&mut call.reply());
    Ok(())
}

pub fn sflight_mget(call: &Call<'_>, FlightMgetCall { name, keys }: FlightMgetCall<'_>) -> Result<(), Failure> {
    let now = clock::now();
    let cache_name = CacheName::of(Key::open_to_read(call, call.string(0)?), name)?;
    let (mut seen, mut bytes) = (Vec::with_capacity(keys.len()), 0);
    for (index, key) in keys.iter().enumerate() {
        require_one_slot(key, name)?;
        // To copy more would hold up everybody else.
        if bytes > MGET_BYTES_MAX {
            seen.push(None);
            continue;
        }
        let found = read_at::<Flights, _>(call, 1 + index, |flight| look(flight, Some(cache_name.known()), now))?;
        count(&found);
        if let Seen::Value { bytes: value, .. } | Seen::Stale { bytes: value, .. } = &found {
            bytes += value.len();
        }
        seen.push(Some(JoinedReply::from(found)));
    }
    SeenMany(seen).write(&mut call.reply());
    Ok(())
}

pub fn sflight_publish(
    call: &Call<'_>,
    PublishCall { key, token, ttl, under, tags, brought }: PublishCall<'_>,
) -> Result<(), Failure> {
    let (publication, stale) = publication(brought);
    let now = clock::now();
    let mut cache_name = CacheName::open(call, key, under, Key::open_to_write)?;
    let opened = Opened::<Flights>::open(call, call.string(0)?)?;
    // Without memory to keep it, those who wait get it all the same. An error is small, and its ttl keeps everybody
    // from loading in vain, one after another.
    let is_small = matches!(publication, Publication::Error { .. });
    let ttl = if !is_small && call.is_short_of_memory() { Span::ZERO } else { ttl };
    let under = cache_name.as_ref().map(|cache_name| UnderName { known: cache_name.known(), tags: &tags });
    let published = opened.step(call, now, &[], |key, setting| publish(key, token, ttl, publication, under, setting));
    match published {
        Published::Published { .. } => {
            counters().published.add(1);
            if let Some(cache_name) = &mut cache_name {
                cache_name.extend(call, now.plus(ttl).plus(stale));
            }
        }
        Published::Lost(_) => Flights::counters().stale.add(1),
    }
    PublishedReply::from(published).write(&mut call.reply());
    Ok(())
}

pub fn sflight_set(call: &Call<'_>, SetCall { key, ttl, under, tags, brought }: SetCall<'_>) -> Result<(), Failure> {
    call.require_memory()?;
    let (publication, stale) = publication(brought);
    let now = clock::now();
    let mut cache_name = CacheName::open(call, key, under, Key::open_to_write)?;
    let opened = Opened::<Flights>::open(call, call.string(0)?)?;
    if let Some(cache_name) = &mut cache_name {
        cache_name.begin(call, now)?;
    }
    let under = cache_name.as_ref().map(|cache_name| UnderName { known: cache_name.known(), tags: &tags });
    let followers = opened.step(call, now, &[], |key, setting| set(key, ttl, publication, under, setting));
    counters().published.add(1);
    if let Some(cache_name) = &mut cache_name {
        cache_name.extend(call, now.plus(ttl).plus(stale));
        cache_name.tell(call, b"key ", key);
    }
    call.reply().integer(followers as i64);
    Ok(())
}

fn publication(brought: Brought<'_>) -> (Publication, Span) {
    match brought {
        Brought::Value { bytes, stale } => (Publication::Value { bytes: bytes.into(), stale }, stale),
        Brought::Empty => (Publication::Empty, Span::ZERO),
        Brought::Error { text } => (Publication::Error { text: text.into() }, Span::ZERO),
    }
}

pub fn sflight_abandon(call: &Call<'_>, AbandonCall { token, retry, .. }: AbandonCall<'_>) -> Result<(), Failure> {
    let opened = Opened::<Flights>::open(call, call.string(0)?)?;
    let abandoned = opened.step(call, clock::now(), &[], |key, setting| abandon(key, token, retry, setting));
    let lost = match abandoned {
        Abandoned::Abandoned => None,
        Abandoned::Lost(reason) => Some(reason),
    };
    Flights::counters().stale.add(lost.is_some().into());
    write_given_up("ABANDONED", lost, &mut call.reply());
    Ok(())
}

pub fn sflight_renew(call: &Call<'_>, request: TokenRenewCall<'_>) -> Result<(), Failure> {
    renew_token::<Flights>(call, request, renew)
}

pub fn sflight_invalidate(
    call: &Call<'_>,
    InvalidateCall { key, soft, under }: InvalidateCall<'_>,
) -> Result<(), Failure> {
    let cache_name = CacheName::open(call, key, under, Key::open_to_write)?;
    let opened = Opened::<Flights>::open(call, call.string(0)?)?;
    let anything = opened.step(call, clock::now(), &[], |key, setting| invalidate(key, soft, setting));
    counters().invalidated.add(u64::from(anything));
    // Even if there was nothing here: somebody may have it from before it was evicted.
    if let Some(cache_name) = &cache_name {
        cache_name.tell(call, b"key ", key);
    }
    call.reply().integer(i64::from(anything));
    Ok(())
}

pub fn sflight_clear(call: &Call<'_>, ClearCall { name, tags, soft }: ClearCall<'_>) -> Result<(), Failure> {
    let now = clock::now();
    let mut cache_name = CacheName::of(Key::open_to_write(call, call.string(0)?), name)?;
    let leaves = if soft { Leaves::Stale } else { Leaves::Nothing };
    let known = cache_name.known();
    let Step { verdict, change } = with_floor(now, |floor| generations::clear(known, &tags, leaves, floor, now));
    if let Some(edits) = change {
        cache_name.edit(call, edits);
        notify(call, &cache_name.key, c"res.sflight.cleared");
    }
    counters().cleared.add(1);
    match &*tags {
        [] => cache_name.tell(call, b"all", b""),
        tags => tags.iter().for_each(|tag| cache_name.tell(call, b"tag ", tag)),
    }
    call.reply().integer(verdict.cast_signed());
    Ok(())
}

fn require_one_slot(key: &[u8], name: &[u8]) -> Result<(), Failure> {
    if !cluster::in_one_slot(key, name) {
        return Err(Refused::with_code("CROSSSLOT", "Keys in request don't hash to the same slot").into());
    }
    Ok(())
}

/// The name of the channel on which those who keep values of a cache name hear what is out of date follows: `key <key>`, `tag <tag>` or
/// `all`.
const INVALIDATED_PREFIX: &[u8] = b"resil:invalidated:";

/// What a name that has no key means.
static UNKNOWN: LazyLock<Generations> = LazyLock::new(Generations::default);

/// The key that a call is UNDER, opened.
struct CacheName<'c> {
    key: Key<'c>,
    value: Option<Value<Boxed<Generations>>>,
    name: &'c [u8],
}

impl<'c> CacheName<'c> {
    /// `open` is to read, or to write.
    fn open<'s>(
        call: &'c Call<'s>,
        key: &[u8],
        under: Option<&'c [u8]>,
        open: impl FnOnce(&'c Call<'s>, *mut raw::RedisModuleString) -> Key<'c>,
    ) -> Result<Option<Self>, Failure> {
        let Some(name) = under else { return Ok(None) };
        require_one_slot(key, name)?;
        let index = call.args().iter().position(|arg| std::ptr::eq(*arg, name));
        let string = call.string(index.ok_or_else(|| Refused::new("missing UNDER"))?)?;
        Self::of(open(call, string), name).map(Some)
    }

    fn of(key: Key<'c>, name: &'c [u8]) -> Result<Self, Failure> {
        let value = key.value::<Boxed<Generations>>()?;
        Ok(Self { key, value, name })
    }

    fn known(&self) -> &Generations {
        self.value.as_ref().map_or(&*UNKNOWN, Value::get)
    }

    /// Something is loaded under the name: there is a key.
    fn begin(&mut self, call: &Call<'_>, now: Instant) -> Result<(), Failure> {
        let Step { change, .. } = with_floor(now, |floor| generations::begin(self.known(), floor, now));
        if let Some(edits) = change {
            call.require_memory()?;
            self.edit(call, edits);
        }
        Ok(())
    }

    /// Something under the name lives until `until`.
    fn extend(&mut self, call: &Call<'_>, until: Instant) {
        if let Some(edits) = generations::extend(self.known(), until).change {
            self.edit(call, edits);
        }
    }

    fn edit(&mut self, call: &Call<'_>, edits: GenerationEdits) {
        edit_plain::<Generations>(&mut self.key, self.value, edits.clone());
        publish_plain::<Generations>(call, &self.key, &edits, self.value.is_none());
        self.value = self.key.value::<Boxed<Generations>>().ok().flatten();
    }

    /// Those who keep values of the name in their own memory hear what is out of date.
    fn tell(&self, call: &Call<'_>, what: &[u8], which: &[u8]) {
        server::publish(call.ctx, &[what, which].concat(), &[&[INVALIDATED_PREFIX, self.name].concat()]);
    }
}

fn with_floor<R>(now: Instant, step: impl FnOnce(&mut Floor) -> R) -> R {
    fences::with_setting(now, None, |setting| step(setting.floor))
}

pub fn sflight_info(call: &Call<'_>, key: &[u8]) -> Result<(), Failure> {
    let (now, promoted_at) = (clock::now(), fences::promoted_at());
    let followers = queues::look::<Flights, _>(call.db(), key, |queue| queue.len());
    read::<Flights, _>(call, |flight| write_info(flight, followers, promoted_at, now, &mut call.reply()))
}
