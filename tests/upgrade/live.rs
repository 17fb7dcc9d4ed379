//! Both versions live: an earlier module and today's, each the replica of the other, then in its place.
//!
//! `scripts/upgrade` builds the module of an earlier revision, names it in `RESIL_OLD_MODULE` and runs these tests; elsewhere cargo
//! lists them as ignored. What the earlier module refuses came later: it is played only where the scene is about that.

use std::time::Duration;

use resil_harness::{Server, eventually, ok, wait_for_sync};
use resil_tests::old_files::{KEYS, Player, options, says_the_same};

/// Commands of a key, and its looks; whether the earlier module takes all of them.
struct Group {
    commands: &'static [&'static str],
    looks: Vec<&'static str>,
    is_known: bool,
}

fn start_old() -> Server {
    let path = std::env::var_os("RESIL_OLD_MODULE").expect("RESIL_OLD_MODULE names an earlier module: scripts/upgrade");
    Server::start(options().module_path(path))
}

/// Every key, and what the earlier module knows of it.
fn groups() -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (commands, look) in KEYS {
        match groups.last_mut() {
            Some(group) if commands.is_empty() => group.looks.push(look),
            _ => groups.push(Group { commands, looks: vec![look], is_known: true }),
        }
    }
    let old = start_old();
    let mut player = Player::on(&old);
    for group in &mut groups {
        player.permit.clear();
        group.is_known = player.play(group.commands).is_ok() && group.looks.iter().all(|look| player.ask(look).is_ok());
    }
    let known = groups.iter().filter(|group| group.is_known).count();
    assert!(known >= 20, "the earlier module knows limits, breakers, locks, records and flights, not {known} of them");
    groups
}

/// Two servers, the second the replica of the first.
struct Pair {
    primary: Player,
    replica: Player,
    primary_server: Server,
    replica_server: Server,
}

impl Pair {
    fn of(primary_server: Server, replica_server: Server) -> Self {
        let (primary, replica) = (Player::on(&primary_server), Player::on(&replica_server));
        let mut pair = Self { primary, replica, primary_server, replica_server };
        pair.attach();
        pair
    }

    fn attach(&mut self) {
        ok(&mut self.replica.connection, &["REPLICAOF", "127.0.0.1", &self.primary_server.port().to_string()]);
        wait_for_sync(&self.primary_server, &self.replica_server);
    }

    fn play(&mut self, group: &Group) {
        self.primary.permit.clear();
        self.primary.play(group.commands).unwrap_or_else(|refusal| panic!("{:?}: {refusal}", group.commands));
    }

    fn sync(&mut self) {
        wait_for_sync(&self.primary_server, &self.replica_server);
        self.replica.set_clock(self.primary.clock_us());
    }

    /// Each look gives the same on both; what a later version adds to a reply is its own.
    #[track_caller]
    fn assert_same(&mut self, groups: &[Group], is_new_primary: bool) {
        for look in groups.iter().flat_map(|group| &group.looks) {
            let (on_primary, on_replica) = (self.primary.ask(look), self.replica.ask(look));
            let (primary, replica) = (on_primary.expect("a reply"), on_replica.expect("a reply"));
            let (old, new) = if is_new_primary { (&replica, &primary) } else { (&primary, &replica) };
            assert!(says_the_same(old, new), "{look}\nprimary {primary}\nreplica {replica}");
        }
        assert_eq!(self.primary.ask("DBSIZE"), self.replica.ask("DBSIZE"));
        assert_eq!(self.not_applied(), 0, "changes were not applied");
    }

    /// Changes that the replica refused or did not know.
    fn not_applied(&mut self) -> i64 {
        let info = ok(&mut self.replica.connection, &["INFO", "resil"]);
        let info: String = redis::from_redis_value(info).expect("INFO is text");
        let number = |field: &str| {
            let value = info.lines().find_map(|line| line.strip_prefix(field)).expect("the field is there");
            value.parse::<i64>().expect("a number")
        };
        number("resil_apply_refused:") + number("resil_apply_unknown_version:")
    }

    /// The primary dies, and its replica takes its place.
    fn fail_over(mut self) -> (Server, Player) {
        self.primary_server.kill9();
        let mut promoted = self.replica;
        ok(&mut promoted.connection, &["REPLICAOF", "NO", "ONE"]);
        (self.replica_server, promoted)
    }
}

/// The fences of grants of every kind, on keys that are new: the second element of each reply.
fn new_fences(player: &mut Player, prefix: &str) -> Vec<i64> {
    player.ask(&format!("RES.BULKHEAD ENTER {prefix}2 a 3 1m")).expect("a permit");
    let asks = [
        "RES.LOCK ACQUIRE {}1 a 1m",
        "RES.BULKHEAD RENEW {}2 a 1m",
        "RES.IDEMP BEGIN {}3 t 1m",
        "RES.SFLIGHT JOIN {}4 t 1m",
    ];
    let mut fence = |ask: &str| player.ask(&ask.replace("{}", prefix)).expect("a grant")[1].as_i64().expect("a fence");
    asks.iter().map(|ask| fence(ask)).collect()
}

/// Who holds something goes on with the server that took over, and who was refused is refused.
#[track_caller]
fn assert_holders_go_on(player: &mut Player, probe: &str, fences_before: &[i64]) {
    let fences = new_fences(player, "after");
    assert!(fences.iter().min() > fences_before.iter().max(), "fences grow: {fences:?} after {fences_before:?}");
    let mut says = |line: &str, first: serde_json::Value| {
        let reply = player.ask(line).unwrap_or_else(|refusal| panic!("{line}: {refusal}"));
        assert_eq!(reply.get(0).unwrap_or(&reply), &first, "{line}: {reply}");
    };
    says("RES.LOCK CHECK held a", 1.into());
    says("RES.LOCK ACQUIRE held b 1d", "TAKEN".into());
    says("RES.LOCK RENEW held a 10d", "GRANTED".into());
    says("RES.LOCK RELEASE held a", "RELEASED".into());
    says("RES.BULKHEAD RENEW bulkhead a 1d", "GRANTED".into());
    says("RES.BULKHEAD LEAVE bulkhead b", "RELEASED".into());
    says("RES.GCRA gcra 10 1m COST 10", 0.into());
    says("RES.WINDOW window 5 1h COST 3", 0.into());
    says("RES.BREAKER ADMIT open", 0.into());
    says(&format!("RES.BREAKER REPORT letting {probe} OK"), 1.into());
    says("RES.IDEMP COMMIT running t 1d result", "COMMITTED".into());
    says("RES.IDEMP BEGIN done other 1m FINGERPRINT f", "REPLAY".into());
    says("RES.IDEMP ONCE once 10d TOKEN other", 0.into());
    says("RES.SFLIGHT PUBLISH leading t 1d VALUE v", "PUBLISHED".into());
    says("RES.SFLIGHT GET value", "VALUE".into());
}

/// The permit of the breaker that lets a probe out.
fn probe_of(pair: &mut Pair, groups: &[Group]) -> String {
    let mut probe = String::new();
    for group in groups {
        pair.play(group);
        if group.looks == ["RES.BREAKER STATE letting"] {
            probe.clone_from(&pair.primary.permit);
        }
    }
    probe
}

fn known(groups: Vec<Group>) -> Vec<Group> {
    groups.into_iter().filter(|group| group.is_known).collect()
}

#[test]
#[ignore = "needs an earlier module: scripts/upgrade"]
fn a_new_replica_takes_over_from_an_old_primary() {
    let groups = known(groups());
    let mut pair = Pair::of(start_old(), Server::start(options()));
    let probe = probe_of(&mut pair, &groups);
    let fences = new_fences(&mut pair.primary, "before");
    pair.sync();
    pair.assert_same(&groups, false);
    let (_server, mut promoted) = pair.fail_over();
    assert_holders_go_on(&mut promoted, &probe, &fences);
}

#[test]
#[ignore = "needs an earlier module: scripts/upgrade"]
fn a_new_replica_that_comes_later_takes_over_too() {
    let groups = known(groups());
    let mut pair = Pair::of(start_old(), Server::start(options()));
    ok(&mut pair.replica.connection, &["REPLICAOF", "NO", "ONE"]);
    let probe = probe_of(&mut pair, &groups);
    let fences = new_fences(&mut pair.primary, "before");
    pair.attach();
    pair.sync();
    pair.assert_same(&groups, false);
    let (_server, mut promoted) = pair.fail_over();
    assert_holders_go_on(&mut promoted, &probe, &fences);
}

#[test]
#[ignore = "needs an earlier module: scripts/upgrade"]
fn an_old_replica_follows_what_it_knows_and_takes_over() {
    let groups = known(groups());
    let mut pair = Pair::of(Server::start(options()), start_old());
    let probe = probe_of(&mut pair, &groups);
    let fences = new_fences(&mut pair.primary, "before");
    pair.sync();
    pair.assert_same(&groups, true);
    let (_server, mut promoted) = pair.fail_over();
    assert_holders_go_on(&mut promoted, &probe, &fences);
}

#[test]
#[ignore = "needs an earlier module: scripts/upgrade"]
fn an_old_replica_that_comes_later_loads_what_it_knows() {
    let groups = known(groups());
    let mut pair = Pair::of(Server::start(options()), start_old());
    ok(&mut pair.replica.connection, &["REPLICAOF", "NO", "ONE"]);
    probe_of(&mut pair, &groups);
    pair.attach();
    pair.sync();
    pair.assert_same(&groups, true);
}

/// docs/replication.md: what an earlier replica does not know is counted, logged and skipped, and nothing else suffers.
#[test]
#[ignore = "needs an earlier module: scripts/upgrade"]
fn an_old_replica_skips_what_it_does_not_know() {
    let (known, unknown): (Vec<_>, Vec<_>) = groups().into_iter().partition(|group| group.is_known);
    let mut pair = Pair::of(Server::start(options()), start_old());
    for group in &unknown {
        pair.play(group);
    }
    pair.sync();
    let skipped = pair.not_applied();
    eprintln!("{} keys that the earlier module does not know, {skipped} changes skipped", unknown.len());
    assert_eq!(skipped > 0, !unknown.is_empty());
    if skipped > 0 {
        let log = pair.replica_server.log();
        eventually("the first one is logged", Duration::from_secs(5), || log.contains("a replicated change"));
    }
    for group in &known {
        pair.play(group);
    }
    pair.sync();
    for look in known.iter().flat_map(|group| &group.looks) {
        let (primary, replica) = (pair.primary.ask(look).expect("a reply"), pair.replica.ask(look).expect("a reply"));
        assert!(says_the_same(&replica, &primary), "{look}\nprimary {primary}\nreplica {replica}");
    }
    assert_eq!(pair.not_applied(), skipped, "only those were skipped");
}
