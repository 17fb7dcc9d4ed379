//! Several independent servers that together grant locks: `redis+quorum://a,b,c,d,e`.
//!
//! # The promise
//! Each server has a connection of its own, kept like any other. A call goes to all of them at once, and what counts is what a
//! majority says. This backend is here while a majority is. It has locks, and nothing else: limits, breakers and the rest live on
//! one server, and are refused with a sentence that says so.
//!
//! # The URL
//! `redis+quorum://[user[:password]@]host[:port],host[:port],host[:port][/db]`, and `rediss+quorum://` over TLS: 3 to 15 different
//! servers, one user and one database for all. `?protocol=resp2` and `#insecure` mean what they mean for one server.
//!
//! How a lock is acquired, renewed and released over them is in [`holding::quorum`](crate::holding::quorum); what is decided from
//! the replies, in [`resil_core::quorum`].

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use resil_core::limits::{QUORUM_LEAST, QUORUM_MOST};
use resil_core::quorum::majority;
use resil_wire::command::{Command, Reply};
use resil_wire::holding::OwnedCall;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::redis::Redis;
use super::{Reach, WhyAway};
use crate::client::ConnectSettings;
use crate::error::Error;

pub(crate) const NO_MAJORITY: Error =
    Error::BackendUnavailable("fewer than a majority of the quorum's servers replied");

/// A reply that takes longer than this part of a lease is not waited for, within bounds: a majority is there before.
const PATIENCE_PART: u32 = 20;
const PATIENCE_LEAST: Duration = Duration::from_millis(20);
const PATIENCE_MOST: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(crate) struct Quorum {
    pub servers: Vec<Redis>,
    reach: watch::Receiver<Reach>,
    closing: CancellationToken,
    _ends_with_it: DropGuard,
}

impl Quorum {
    pub async fn connect(options: &ConnectSettings) -> Result<Self, Error> {
        let urls = server_urls(&options.url)?;
        let count = urls.len();
        let Some(runtime) = options.background() else {
            return Err(Error::BackendUnavailable("no thread could be started for the connections"));
        };
        let each: Vec<ConnectSettings> =
            urls.into_iter().map(|url| ConnectSettings { url, require_server: false, ..options.clone() }).collect();
        let connected = join_all(each.iter().map(Redis::connect)).await;
        let mut servers = Vec::with_capacity(count);
        for (at, server) in connected.into_iter().enumerate() {
            servers.push(server.map_err(|error| of_server(at, count, error))?);
        }
        let here = servers.iter().filter(|server| *server.reach().borrow() == Reach::Here).count();
        if options.require_server && here < majority(count) {
            return Err(NO_MAJORITY);
        }
        let closing = CancellationToken::new();
        let (sender, reach) = watch::channel(reach_of(&servers.iter().map(Redis::reach).collect::<Vec<_>>()));
        runtime.spawn(follow(servers.iter().map(Redis::reach).collect(), sender, closing.clone()));
        Ok(Self { servers, reach, _ends_with_it: closing.clone().drop_guard(), closing })
    }

    pub fn majority(&self) -> usize {
        majority(self.servers.len())
    }

    /// How long one server may take to reply about a lock of this lease.
    pub fn patience(lease: Duration) -> Duration {
        (lease / PATIENCE_PART).clamp(PATIENCE_LEAST, PATIENCE_MOST)
    }

    /// What is asked of locks beside acquiring, renewing and releasing them.
    pub async fn call(&self, command: &Command<'_>) -> Result<Reply, Error> {
        match command {
            // Fences above the lock's may be held at single servers; the owner is unique.
            Command::LockCheck(call) => {
                self.check(&Command::LockCheck(OwnedCall { fence: None, ..call.clone() })).await
            }
            Command::LockBreak(_) => self.break_lock(command).await,
            Command::LockInfo(_) => Err(Error::InvalidArgument(
                "info of a lock is not there over redis+quorum://: ask each server with RES.LOCK INFO".to_owned(),
            )),
            _ => Err(only_locks("this")),
        }
    }

    async fn check(&self, command: &Command<'_>) -> Result<Reply, Error> {
        let replies = self.ask_all(command).await?;
        let held = replies.iter().filter(|reply| matches!(reply, Reply::Number(1))).count();
        Ok(Reply::Number(i64::from(held >= self.majority())))
    }

    async fn break_lock(&self, command: &Command<'_>) -> Result<Reply, Error> {
        let replies = self.ask_all(command).await?;
        let broken = replies.iter().map(|reply| if let Reply::Number(number) = reply { *number } else { 0 });
        Ok(Reply::Number(broken.max().unwrap_or(0)))
    }

    /// What the servers say that reply; an error if they are no majority.
    async fn ask_all(&self, command: &Command<'_>) -> Result<Vec<Reply>, Error> {
        let outcomes = join_all(self.servers.iter().map(|server| server.call(command))).await;
        let mut refused = None;
        let mut replies = Vec::new();
        for outcome in outcomes {
            match outcome {
                Ok(reply) => replies.push(reply),
                Err(Error::BackendUnavailable(_)) => {}
                Err(error) => refused = Some(error),
            }
        }
        if replies.len() >= self.majority() { Ok(replies) } else { Err(refused.unwrap_or(NO_MAJORITY)) }
    }

    pub fn reach(&self) -> watch::Receiver<Reach> {
        self.reach.clone()
    }

    pub fn why_away(&self) -> Option<WhyAway> {
        let away: Vec<WhyAway> = self.servers.iter().filter_map(Redis::why_away).collect();
        let here = self.servers.len() - away.len();
        (here < self.majority()).then(|| {
            let since = away.iter().map(|why| why.since).max().unwrap_or_else(SystemTime::now);
            WhyAway { error: NO_MAJORITY, since }
        })
    }

    pub async fn close(&self) {
        self.closing.cancel();
        join_all(self.servers.iter().map(Redis::close)).await;
    }
}

/// What is asked for cannot be had from several servers.
pub(crate) fn only_locks(what: &str) -> Error {
    Error::InvalidArgument(format!(
        "redis+quorum:// has exclusive locks only, and {what} is none: connect a client to one server with redis:// for it"
    ))
}

fn of_server(at: usize, count: usize, error: Error) -> Error {
    let which = at + 1;
    match error {
        Error::BackendUnavailable(_) | Error::PermissionDenied(_) => error,
        other => Error::InvalidArgument(format!("server {which} of {count}: {other}")),
    }
}

fn reach_of(each: &[watch::Receiver<Reach>]) -> Reach {
    let here = each.iter().filter(|reach| *reach.borrow() == Reach::Here).count();
    if here >= majority(each.len()) { Reach::Here } else { Reach::Away }
}

/// Says when a majority comes or goes, and also when one server of it comes back: locks are to be renewed there, too.
async fn follow(each: Vec<watch::Receiver<Reach>>, sender: watch::Sender<Reach>, closing: CancellationToken) {
    let mut changes: FuturesUnordered<_> = each.iter().cloned().map(next_change).collect();
    loop {
        let changed = tokio::select! {
            changed = changes.next() => changed,
            () = closing.cancelled() => None,
        };
        let Some(changed) = changed else { return };
        if let Some(receiver) = changed {
            changes.push(next_change(receiver));
        }
        sender.send_replace(reach_of(&each));
    }
}

async fn next_change(mut receiver: watch::Receiver<Reach>) -> Option<watch::Receiver<Reach>> {
    receiver.changed().await.ok().map(|()| receiver)
}

/// One URL for each server.
fn server_urls(url: &str) -> Result<Vec<String>, Error> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let scheme = if scheme == "rediss+quorum" { "rediss" } else { "redis" };
    let (hosts_end, tail) = match rest.find(['/', '?', '#']) {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let (user, hosts) = hosts_end.rsplit_once('@').map_or(("", hosts_end), |(user, hosts)| (user, hosts));
    if user.contains('@') {
        return Err(invalid(
            "it has more than one @; one user and one password for all servers stand once, before the first host, and a @ in them is %40",
        ));
    }
    let at = if user.is_empty() { "" } else { "@" };
    let hosts: Vec<String> = hosts.split(',').map(with_port).collect();
    if hosts.iter().any(|host| host.starts_with(':')) {
        return Err(invalid("a host is missing"));
    }
    if !(QUORUM_LEAST..=QUORUM_MOST).contains(&hosts.len()) {
        let count = hosts.len();
        return Err(invalid(&format!(
            "it names {count} servers; redis+quorum://host1,host2,host3 takes from {QUORUM_LEAST} to {QUORUM_MOST}"
        )));
    }
    let different: BTreeSet<String> = hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
    if different.len() < hosts.len() {
        return Err(invalid("it names a server twice, which would count twice in a majority"));
    }
    Ok(hosts.into_iter().map(|host| format!("{scheme}://{user}{at}{host}{tail}")).collect())
}

/// A host without a port is at the usual one.
fn with_port(host: &str) -> String {
    let has_port = host.rsplit_once(':').is_some_and(|(before, port)| {
        port.bytes().all(|byte| byte.is_ascii_digit()) && (!before.contains(':') || before.ends_with(']'))
    });
    if has_port { host.to_owned() } else { format!("{host}:6379") }
}

fn invalid(reason: &str) -> Error {
    Error::InvalidArgument(format!("the URL cannot be used: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        server_urls(url).expect_err("it cannot be used").to_string()
    }

    #[test]
    fn every_server_has_the_user_the_database_and_the_options() {
        let urls = server_urls("redis+quorum://ann:s%40cret@a,b:7,[::1]:8/3?protocol=resp2").expect("three servers");
        let tail = "/3?protocol=resp2";
        let each = ["a:6379", "b:7", "[::1]:8"].map(|host| format!("redis://ann:s%40cret@{host}{tail}"));
        assert_eq!(urls, each);
        assert!(server_urls("rediss+quorum://a,b,c#insecure").expect("three")[2].starts_with("rediss://c:6379"));
    }

    #[test]
    fn a_url_without_a_majority_is_refused_with_reason() {
        assert!(refused("redis+quorum://a,b").contains("names 2 servers"));
        assert!(refused("redis+quorum://a,b,b:6379").contains("twice"));
        assert!(refused("redis+quorum://a,b,").contains("host is missing"));
        assert!(refused("redis+quorum://u:one@a,u:two@b,u:three@c").contains("stand once, before the first host"));
        let many = vec!["h"; 16].iter().enumerate().map(|(at, h)| format!("{h}{at}")).collect::<Vec<_>>().join(",");
        assert!(refused(&format!("redis+quorum://{many}")).contains("from 3 to 15"));
    }

    #[test]
    fn no_secret_is_in_an_error() {
        assert!(!refused("redis+quorum://ann:secret@a,b").contains("secret"));
    }
}
