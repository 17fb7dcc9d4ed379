//! The model's time, restarts and governance.

use super::{Case, Item, Model, Redrive, Said, State};
use crate::key::{DAY, MINUTE};
use resil_core::dead_letters::Category;

impl Redrive {
    fn begun(started: i64, first: u32) -> Self {
        Self {
            running: true,
            started,
            first,
            left: u32::MAX,
            oneshot: false,
            given: 0,
            resolved: 0,
            outcomes: Vec::new(),
            cursor: (0, 0),
            until: i64::MAX,
            exhausted: false,
            finished: false,
        }
    }
}

impl Model {
    /// Everything that is due by now has happened.
    pub fn settle(&mut self) {
        let (now, old) = (self.now, |item: &Item, now: i64| item.at + 90 * DAY <= now);
        self.items.retain(|item| !(item.state == State::Resolved && !item.held && old(item, now)));
        self.forget_alarms();
        (0..self.cases.len()).for_each(|case| self.begin_by_itself(case));
        while let Some(at) = (0..self.leases.len()).min_by_key(|at| self.leases[*at].ends)
            && self.leases[at].ends <= self.now
        {
            let lease = self.leases.remove(at);
            self.lapse(&lease, lease.ends, true);
        }
        self.look_for_alarms();
        for case in 0..self.cases.len() {
            self.settle_redrive(case);
            self.discard(case);
        }
        // What was discarded, no redrive waits for.
        (0..self.cases.len()).for_each(|case| self.settle_redrive(case));
        (0..self.cases.len()).for_each(|case| self.begin_by_itself(case));
        self.forget_alarms();
    }

    /// AUTO: what died since the diagnosis, once nothing has died for a minute.
    fn begin_by_itself(&mut self, case: usize) {
        let of = &self.cases[case];
        let Some(until) = of.auto_until.filter(|_| of.open) else { return };
        let deaths = of.groups.iter().filter_map(|group| self.alarms.last_deaths.get(group));
        let is_quiet = deaths.max().is_some_and(|last| *last > of.opened && last + MINUTE <= self.now);
        let is_free =
            of.redrive.as_ref().is_none_or(|last| last.finished && last.outcomes.len() == last.given as usize);
        if is_quiet && is_free {
            let former = self.cases[case].redrive.take();
            let cursor = (self.cases[case].opened, usize::MAX);
            self.cases[case].redrive = Some(Redrive { cursor, until, ..Redrive::begun(self.now, 1) });
            if self.next_of(case).is_none() {
                self.cases[case].redrive = former;
            }
        }
    }

    fn settle_redrive(&mut self, case: usize) {
        loop {
            let is_exhausted = self.draws(case) && self.next_of(case).is_none();
            let Some(redrive) = self.cases[case].redrive.as_mut().filter(|redrive| redrive.running) else { return };
            let active = redrive.given as usize - redrive.outcomes.len();
            if Self::has_failed(redrive) {
                redrive.running = false;
                let died = redrive.outcomes.iter().filter(|died| **died).count() as u64;
                self.alarms.raise("stopped", (case + 1).to_string(), died);
            } else if active == 0 && (redrive.exhausted || redrive.left == 0) {
                (redrive.running, redrive.finished) = (false, true);
            } else if is_exhausted {
                redrive.exhausted = true;
            } else {
                return;
            }
        }
    }

    fn discard(&mut self, case: usize) {
        if !std::mem::take(&mut self.cases[case].discards) {
            return;
        }
        for at in 0..self.items.len() {
            if self.is_of(case, &self.items[at]) {
                (self.items[at].state, self.items[at].at) = (State::Archived, self.now);
                let aggregate = self.items[at].aggregate.clone();
                self.unpark(&aggregate);
            }
        }
    }

    /// Dead in a group of the case since before its diagnosis.
    fn is_of(&self, case: usize, item: &Item) -> bool {
        let of = &self.cases[case];
        let is_covered = item.group.as_ref().is_some_and(|group| of.groups.contains(group));
        item.state == State::Dead && is_covered && item.at <= of.opened
    }

    pub fn restarts(&mut self, promotes: bool) {
        self.up_since = self.now;
        if promotes {
            for lease in self.leases.iter_mut().filter(|lease| lease.ends > self.now) {
                lease.ends = lease.ends.max(self.now + lease.length);
            }
        }
    }

    pub fn diagnose(&mut self, groups: &[&str], category: Category, auto: Option<i64>) -> Said {
        let exists = |group: &str| {
            let covered = self.cases.iter().any(|case| case.open && case.groups.iter().any(|of| of == group));
            covered || self.items.iter().any(|item| item.group.as_deref() == Some(group))
        };
        if !groups.iter().all(|group| exists(group)) {
            return Said::Unknown;
        }
        let groups = groups.iter().map(|group| group.to_string()).collect();
        let (opened, open, discards, was_discarded, redrive) = (self.now, true, false, false, None);
        let auto_until = auto.map(|auto| opened + auto);
        self.cases.push(Case { groups, category, opened, open, discards, was_discarded, auto_until, redrive });
        Said::Case(self.cases.len())
    }

    pub fn redrive(&mut self, case: usize, first: u32, count: Option<u32>, oneshot: bool) -> Said {
        let Some(of) = self.cases.get(case) else { return Said::Refused("case") };
        let is_under_way = |redrive: &Redrive| redrive.running || redrive.outcomes.len() < redrive.given as usize;
        if !of.open {
            return Said::Refused("closed");
        } else if of.category == Category::Poison {
            return Said::Refused("poison");
        } else if of.redrive.as_ref().is_some_and(is_under_way) {
            return Said::Refused("running");
        }
        let covers = |item: &&Item| {
            let is_covered = item.group.as_ref().is_some_and(|group| of.groups.contains(group));
            item.state == State::Dead && is_covered && item.at < self.now
        };
        let covered: Vec<&Item> = self.items.iter().filter(covers).collect();
        let free = covered.iter().filter(|item| !item.held && !item.cases.contains(&case)).count();
        if free == 0 {
            let is_held = covered.iter().any(|item| item.held);
            return Said::Refused(if is_held {
                "held"
            } else if covered.is_empty() {
                "nothing"
            } else {
                "again"
            });
        }
        let left = count.unwrap_or(u32::MAX);
        self.cases[case].redrive = Some(Redrive { left, oneshot, ..Redrive::begun(self.now, first) });
        Said::Started(free.min(count.unwrap_or(u32::MAX) as usize))
    }

    pub fn stop(&mut self, case: usize) {
        if let Some(redrive) = self.cases.get_mut(case).and_then(|case| case.redrive.as_mut()) {
            redrive.running = false;
        }
    }

    pub fn close(&mut self, case: usize, discards: bool) -> Said {
        let Some(of) = self.cases.get(case) else { return Said::Refused("case") };
        if !of.open {
            return if discards && !of.was_discarded { Said::Refused("closed") } else { Said::Closed };
        }
        if discards && of.category != Category::Poison {
            return Said::Refused("poison");
        }
        let ended = |item: &Item| matches!(item.state, State::Resolved | State::Archived);
        let is_open = |item: &&Item| item.cases.contains(&case) && !ended(item) || self.is_of(case, item);
        let open = self.items.iter().filter(is_open).count();
        if open > 0 && !discards {
            return Said::Open(open);
        }
        let of = &mut self.cases[case];
        (of.open, of.discards, of.was_discarded) = (false, discards, discards);
        if let Some(redrive) = &mut of.redrive {
            redrive.running = false;
        }
        Said::Closed
    }

    pub fn hold(&mut self, id: &str, held: bool) -> Said {
        let Some(at) = self.find(id) else { return Said::Count(0) };
        self.items[at].held = held;
        Said::Count(1)
    }

    pub fn purge(&mut self) -> Said {
        let before = self.now - 90 * DAY;
        let goes = |item: &Item| {
            let place = matches!(item.state, State::Dead | State::Resolved | State::Archived);
            place && item.at < before && !item.held
        };
        let aggregates: Vec<String> =
            self.items.iter().filter(|item| goes(item)).map(|item| item.aggregate.clone()).collect();
        self.items.retain(|item| !goes(item));
        aggregates.iter().for_each(|aggregate| self.unpark(aggregate));
        Said::Count(aggregates.len())
    }
}
