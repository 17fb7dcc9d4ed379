//! Waits without a blocked client: `WAIT d ASYNC`. The verdict is published to the connection that asked.
//!
//! A connection must listen before it may wait like this; that is asked of the server once. From then on the connection counts
//! as listening until it closes: one that stops listening loses its own verdicts, and a grant that reaches nobody is taken
//! back at once.
//!
//! When a connection closes, it is forgotten at once, so nothing is granted to it any more, and its waits leave their queues in
//! slices.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, VecDeque};

use resil_core::waited::WaiterId;
use resil_core::waited::session::ClientId;
use resil_wire::Refused;
use resil_wire::late::{self, LateVerdict};
use resil_wire::reply::Value;

use crate::blocked_clients::ClientReply;
use crate::call::{Call, Failure};
use crate::queues::KeyName;
use crate::{background, clients, cluster};

#[derive(Default)]
struct AsyncWaits {
    /// The connections that listen, each with its waits.
    listening: HashMap<ClientId, BTreeSet<WaiterId>>,
    /// The waits of connections that have closed.
    left: VecDeque<WaiterId>,
}

thread_local! {
    static WAITS: RefCell<AsyncWaits> = RefCell::new(AsyncWaits::default());
}

fn with<R>(act: impl FnOnce(&mut AsyncWaits) -> R) -> R {
    WAITS.with_borrow_mut(act)
}

/// Where `client` hears of its waits for `key`; `None` if there is no such channel.
fn channel(client: ClientId, key: &[u8]) -> Option<Vec<u8>> {
    if cluster::enabled() { late::channel_in_cluster(client, key) } else { Some(late::channel(client).into_bytes()) }
}

/// Refuses a call that would wait for a verdict nobody hears.
pub fn require_listener(call: &Call<'_>, key: &[u8]) -> Result<(), Failure> {
    let (client, in_cluster) = (call.client(), cluster::enabled());
    // In a cluster every slot has a channel of its own.
    if !in_cluster && with(|waits| waits.listening.contains_key(&client)) {
        return Ok(());
    }
    let Some(channel) = channel(client, key) else {
        return Err(Refused::new("ASYNC is not possible for this key: it has a } and no hash tag").into());
    };
    if clients::subscribers(call.ctx, &channel, in_cluster) > 0 {
        with(|waits| _ = waits.listening.entry(client).or_default());
        return Ok(());
    }
    let (verb, name) = (if in_cluster { "SSUBSCRIBE" } else { "SUBSCRIBE" }, channel.escape_ascii());
    let text =
        format_args!("nobody would hear the verdict: {verb} {name} first, on this connection (RESP3) or another");
    Err(Refused::with_code("NOTLISTENING", text).into())
}

/// A wait of `client` has begun. It is listening.
pub fn begun(client: ClientId, id: WaiterId) {
    with(|waits| waits.listening.entry(client).or_default().insert(id));
}

/// A wait is over.
pub fn over(client: ClientId, id: WaiterId) {
    with(|waits| waits.listening.get_mut(&client).is_some_and(|waits| waits.remove(&id)));
}

/// Publishes a verdict. False if nobody hears it.
pub fn tell(client: ClientId, name: &KeyName, owner: &[u8], reply: ClientReply) -> bool {
    if !with(|waits| waits.listening.contains_key(&client)) {
        return false;
    }
    let Some(channel) = channel(client, &name.key) else { return false };
    let verdict = match reply {
        ClientReply::Verdict(write) => Ok(Value::written(write)),
        ClientReply::Error(text) => Err(text.to_string_lossy().into_owned()),
    };
    let kind = name.kind.text().to_owned();
    let message = LateVerdict { kind, key: name.key.to_vec(), owner: owner.to_vec(), verdict }.to_json();
    clients::publish(background::context(), &channel, message.as_bytes(), cluster::enabled()) > 0
}

/// A connection is gone.
pub fn closed(client: ClientId) {
    let any = with(|waits| {
        let Some(of_client) = waits.listening.remove(&client).filter(|waits| !waits.is_empty()) else { return false };
        waits.left.extend(of_client);
        true
    });
    if any {
        background::plan_soon();
    }
}

/// The next wait of a connection that is gone.
pub fn next_left() -> Option<WaiterId> {
    with(|waits| waits.left.pop_front())
}
