//! Acquiring, renewing and releasing a lock over several servers: asks them all at once, and lets
//! [`resil_core::quorum`] decide from the replies.
//!
//! # The promise
//! - Each attempt has an owner of its own. So nothing that is still on its way from an earlier attempt can touch this one.
//! - A lock is handed over only if a majority acknowledged its fence and a part of the lease is left, counted from before the first
//!   question. Whatever else may have been granted is released at every server, on the connection that asked for it.
//! - Nobody waits for a server that is slow or gone, while a majority replies.
//! - A caller that waits has its reply within its time, whatever servers do, and a moment more for the reply that is on its way.
//! - A caller that waits asks again after a random pause: full jitter, up to [`PAUSE_MOST`].
//! - A renewal goes to all servers. One that came back without the lock is asked for it again by the same owner.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use resil_core::Instant;
use resil_core::quorum::{Acquisition as Attempt, Asked, QuorumVerdict, Raising, Renewal as Round, Send, Unheld};
use resil_wire::command::{Command, Reply};
use resil_wire::holding::{Bind, OwnedCall, Released as WireReleased, RenewCall, Renewed, Wait};
use resil_wire::lock::{AcquireCall, Acquired, LockRenewCall};

use super::ask::{Acquisition, Want};
use super::release::{PendingRelease, Release};
use super::{Grant, Holding, PendingRenewal, from_ms, span, unexpected};
use crate::backend::quorum::{NO_MAJORITY, Quorum};
use crate::backend::redis::TOO_FAR_AHEAD;
use crate::client::Client;
use crate::clock::Moment;
use crate::error::Error;
use crate::health::Away;

/// The longest pause before the first attempts of a caller that waits; doubled each time.
const PAUSE_FIRST: Duration = Duration::from_millis(8);
const PAUSE_MOST: Duration = Duration::from_millis(250);

const TAKEN: &str = "others hold it at too many servers";
const BROKEN: &str = "broken";

fn instant(moment: Moment) -> Instant {
    Instant::from_us(i64::try_from(moment.as_micros()).unwrap_or(i64::MAX))
}

fn moment(instant: Instant) -> Moment {
    Duration::from_micros(instant.as_us().unsigned_abs())
}

/// The owner, and what it asks for.
#[derive(Clone, Copy)]
struct NodeQuestion<'a> {
    key: &'a [u8],
    owner: &'a [u8],
    lease: Duration,
    meta: &'a [u8],
}

/// What one server said.
enum NodeReply {
    Asked(Asked),
    Raising(Raising),
}

impl<'a> NodeQuestion<'a> {
    /// Asks one server: the question is handed in before this returns. An error that a later attempt does not mend is kept.
    fn ask(
        self,
        quorum: &'a Quorum,
        at: usize,
        fence: Option<u64>,
    ) -> impl Future<Output = (usize, NodeReply, Option<Error>)> + 'a {
        let Self { key, owner, lease, meta } = self;
        let span = span(lease);
        let command = match fence {
            None => Command::LockAcquire(AcquireCall {
                key,
                owner,
                lease: span,
                wait: Wait::NONE,
                shared: false,
                bind: Bind::None,
                meta,
            }),
            Some(_) => Command::LockRenew(LockRenewCall {
                renew: RenewCall { key, owner, lease: span, fence: None, bind: Bind::None },
                raise: fence,
            }),
        };
        let asked = quorum.servers.get(at).map(|server| server.begin_within(command, Quorum::patience(lease)));
        async move {
            let reply = match asked {
                Some(asked) => asked.await,
                None => Err(NO_MAJORITY),
            };
            read(at, fence.is_none(), reply)
        }
    }
}

/// What a server said to ACQUIRE, or to RENEW ... RAISE.
fn read(at: usize, is_acquire: bool, reply: Result<Reply, Error>) -> (usize, NodeReply, Option<Error>) {
    let failed = if is_acquire { NodeReply::Asked(Asked::Failed) } else { NodeReply::Raising(Raising::Failed) };
    match reply {
        Ok(Reply::Acquired(Acquired::Granted { fence, .. })) if is_acquire => {
            (at, NodeReply::Asked(Asked::Granted { fence }), None)
        }
        Ok(Reply::Acquired(_)) if is_acquire => (at, NodeReply::Asked(Asked::Taken), None),
        Ok(Reply::Renewed(Renewed::Granted { .. })) => (at, NodeReply::Raising(Raising::Raised), None),
        Ok(Reply::Renewed(Renewed::Lost(reason))) => (at, NodeReply::Raising(Raising::Lost(reason)), None),
        Ok(other) => (at, failed, Some(unexpected(&other))),
        Err(Error::BackendUnavailable(TOO_FAR_AHEAD)) if !is_acquire => {
            (at, NodeReply::Raising(Raising::TooFarAhead), None)
        }
        Err(Error::BackendUnavailable(_)) => (at, failed, None),
        Err(error) => (at, failed, Some(error)),
    }
}

/// Asks until the lock is held, or the time is over.
pub(super) async fn ask(asking: &Acquisition<'_>, quorum: &Quorum, waits: bool) -> Result<Arc<Holding>, Error> {
    let (client, want) = (asking.client, asking.want);
    let mut most = PAUSE_FIRST;
    // Whether the attempt before this one found no majority.
    let mut was_away = None;
    loop {
        let (id, owner) = client.inner().holdings.new_owner(&client.inner().name);
        let unknown = PendingRelease::new(Release::of_unknown(client, want, &owner));
        let attempting = attempt(client, quorum, want, &owner);
        let attempted = if waits {
            tokio::select! {
                biased;
                attempted = attempting => attempted,
                // Slow replies are not a server that is away: what the attempt before found still holds.
                () = client.clock().sleep(asking.left_with_slack()) => {
                    Err(match was_away.unwrap_or_else(|| quorum.why_away().is_some()) {
                        true => NO_MAJORITY,
                        false => taken(want),
                    })
                }
            }
        } else {
            attempting.await
        };
        let refused = match attempted {
            Ok((fence, deadline)) => {
                let grant = Grant { fence: Some(fence), lease: want.lease, deadline, is_open: false };
                let holding = Arc::new(Holding::new(client, want, (id, owner), &grant));
                client.inner().holdings.watch(&holding);
                unknown.settle();
                return Ok(holding);
            }
            Err(error) => error,
        };
        let is_away = matches!(refused, Error::BackendUnavailable(_));
        was_away = Some(is_away);
        if want.away == Away::Open && (is_away || refused.says_away()) {
            return Ok(asking.open(id));
        }
        let may_help = is_away || matches!(refused, Error::LockTimeout { .. });
        let left = asking.left();
        if !waits || !may_help || left.is_zero() {
            // Released before the caller gets the error, as far as the servers reply; what is left goes on in the background.
            let patience = Quorum::patience(want.lease);
            let bound = if waits { patience.min(asking.left_with_slack()) } else { patience };
            within(client, bound, unknown).await;
            return Err(match refused {
                Error::LockTimeout { .. } => asking.refused(None),
                other => other,
            });
        }
        // It is sent before the next attempt, on the same connections, and so read before it.
        let pause = most.mul_f64(client.inner().options.random.unit()).min(left);
        let released = within(client, pause.max(Duration::from_millis(1)), unknown);
        futures_util::future::join(released, client.clock().sleep(pause)).await;
        if client.patience().is_cancelled() {
            return Err(Error::ShuttingDown);
        }
        most = (most * 2).min(PAUSE_MOST);
    }
}

/// Releases; what no majority has replied to by then goes on in the background.
async fn within(client: &Client, bound: Duration, release: PendingRelease) {
    tokio::select! {
        _ = release.say() => {}
        () = client.clock().sleep(bound) => {}
    }
}

fn taken(want: &Want) -> Error {
    Error::LockTimeout { name: Arc::clone(&want.name), waited: Duration::ZERO, retry_after: None }
}

/// One attempt. The error is `LockTimeout` if others have it.
async fn attempt(client: &Client, quorum: &Quorum, want: &Want, owner: &[u8]) -> Result<(u64, Moment), Error> {
    let clock = client.clock();
    let meta = want.meta.as_deref().unwrap_or_default().as_bytes();
    let question = NodeQuestion { key: want.key.as_bytes(), owner, lease: want.lease, meta };
    let servers = quorum.servers.len();
    let mut lock = Attempt::begin(servers, span(want.lease), instant(clock.now()));
    let mut replies: FuturesUnordered<_> = (0..servers).map(|at| question.ask(quorum, at, None)).collect();
    let mut lasting = None;
    loop {
        match lock.verdict(instant(clock.now())) {
            QuorumVerdict::Pending => {}
            QuorumVerdict::Held { until } => {
                return lock.fence().map(|fence| (fence, moment(until))).ok_or(NO_MAJORITY);
            }
            QuorumVerdict::Unheld(Unheld::Taken | Unheld::Broken) => {
                return Err(taken(want));
            }
            QuorumVerdict::Unheld(Unheld::Unreachable | Unheld::Late) => return Err(lasting.unwrap_or(NO_MAJORITY)),
        }
        let fence = lock.fence();
        replies.extend(lock.take_raises().into_iter().map(|at| question.ask(quorum, at, fence)));
        let Some((at, heard, error)) = replies.next().await else { return Err(lasting.unwrap_or(NO_MAJORITY)) };
        lasting = lasting.or(error);
        match heard {
            NodeReply::Asked(asked) => lock.asked(at, asked),
            NodeReply::Raising(raising) => lock.raised(at, raising),
        }
    }
}

/// Renews at all servers. The lock goes on as soon as a majority has it; the others are asked to the end.
pub(super) async fn renew(
    holding: &Holding,
    quorum: &Quorum,
    lease: Duration,
    under_way: PendingRenewal<'_>,
) -> Result<(), Error> {
    let Some(fence) = holding.fence else { return Err(holding.lost_error()) };
    let question = NodeQuestion { key: holding.key.as_bytes(), owner: &holding.owner, lease, meta: b"" };
    let servers = quorum.servers.len();
    let mut round = Round::begin(servers, fence, span(lease), instant(holding.client.clock().now()));
    let mut replies: FuturesUnordered<_> = (0..servers).map(|at| question.ask(quorum, at, Some(fence))).collect();
    let mut under_way = Some(under_way);
    let mut lasting = None;
    while let Some((at, heard, error)) = replies.next().await {
        lasting = lasting.or(error);
        let send = match heard {
            NodeReply::Asked(asked) => round.asked(at, asked),
            NodeReply::Raising(raising) => round.raised(at, raising),
        };
        if holding.is_ended() {
            return Err(holding.lost_error());
        }
        match send {
            Some(Send::Acquire) => replies.push(question.ask(quorum, at, None)),
            Some(Send::Raise) => replies.push(question.ask(quorum, at, Some(fence))),
            None => {}
        }
        match round.verdict() {
            QuorumVerdict::Held { .. } => {
                if let Some(under_way) = under_way.take() {
                    under_way.granted(lease)?;
                }
            }
            QuorumVerdict::Unheld(reason @ (Unheld::Taken | Unheld::Broken)) if under_way.is_some() => {
                holding.lose(if reason == Unheld::Broken { BROKEN } else { TAKEN });
                return Err(holding.lost_error());
            }
            QuorumVerdict::Unheld(_) | QuorumVerdict::Pending => {}
        }
    }
    if under_way.is_none() { Ok(()) } else { Err(lasting.unwrap_or(NO_MAJORITY)) }
}

/// Releases at all servers; waits for a majority of replies. `Ok` is how long it was held.
///
/// It is handed in for all of them before the first reply is looked at, and sent to the others although nobody waits for their
/// replies: else a lease would stay there that nobody holds.
pub(super) async fn release(quorum: &Quorum, call: OwnedCall<'_>) -> Result<Option<Duration>, Error> {
    // By owner, whatever fence it has at each server.
    let command = Command::LockRelease(OwnedCall { fence: None, ..call });
    let mut replies: FuturesUnordered<_> =
        quorum.servers.iter().map(|server| server.begin_to_the_end(command.clone())).collect();
    let (mut replied, mut released) = (0, 0);
    let (mut held, mut lasting) = (Duration::ZERO, None);
    while let Some(reply) = replies.next().await {
        match reply {
            Ok(Reply::Released(WireReleased::Released { held_ms })) => {
                held = held.max(from_ms(held_ms));
                released += 1;
                replied += 1;
            }
            Ok(Reply::Released(WireReleased::Lost(_))) => replied += 1,
            Ok(other) => lasting = Some(unexpected(&other)),
            Err(Error::BackendUnavailable(_)) => {}
            Err(error) => lasting = Some(error),
        }
        if replied >= quorum.majority() {
            return Ok((released > 0).then_some(held));
        }
    }
    Err(lasting.unwrap_or(NO_MAJORITY))
}
