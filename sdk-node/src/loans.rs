//! Leave that a guard gives in advance, so that most calls of a busy turn need not ask.
//!
//! # The idea
//! Within one turn of its loop nothing from outside reaches JavaScript. So a guard that is asked again and again in one turn may
//! say yes to the next calls at once: it lends so many leaves. JavaScript counts down what was lent and counts up what ended
//! well, and brings both back when it needs more, when the turn ends, or before anything else that could notice.
//!
//! # What is promised
//! - What is lent is taken: places of a bulkhead are not free, calls are in flight for a shutdown. Unused leaves are given back
//!   and count as nothing. So a bulkhead is never exceeded, and every outcome is counted.
//! - A failure is told at once, after the successes before it.
//! - A call belongs to the loan under which it began, however long it takes: its outcome counts for that generation.
//!
//! # How much
//! As much as every layer gives; for a guard that is seldom asked, leave for one call. See [`Pace`].

use std::cell::RefCell;
use std::sync::Arc;

use resil::Failure;
use resil::breaker::Admissions;
use resil::policy::{BulkheadPlaces, Timeout};
use smallvec::SmallVec;

use crate::guard::{Layer, Layers};
use crate::thrown::Thrown;

/// How many leaves are lent at once, at most: what fits into a word beside the key.
const MOST: u32 = 64;

/// How many loans there are at once, at most: what fits into a word. Beyond, calls take the long way.
const KEYS: usize = 1 << 22;

/// What a layer holds for the calls of a loan.
enum Hold {
    Nothing,
    Places(BulkheadPlaces),
    Leaves(Admissions),
}

impl Hold {
    fn of(layer: &Layer, most: u32) -> Option<(Self, u32)> {
        match layer {
            Layer::Retry(_) | Layer::Timeout(_) => Some((Self::Nothing, most)),
            Layer::Breaker(breaker) => breaker.admit_several_at_once(most).map(|leaves| {
                let got = leaves.len();
                (Self::Leaves(leaves), got)
            }),
            Layer::Bulkhead(bulkhead) => bulkhead.try_acquire_many(most).map(|places| {
                let got = places.len();
                (Self::Places(places), got)
            }),
            _ => None,
        }
    }

    fn more(&mut self, most: u32) -> u32 {
        match self {
            Self::Nothing => most,
            Self::Places(places) => places.more(most),
            Self::Leaves(leaves) => leaves.more(most),
        }
    }

    fn give_back(&mut self, calls: u32) {
        match self {
            Self::Nothing => {}
            Self::Places(places) => places.give_back(calls),
            Self::Leaves(leaves) => leaves.give_back(calls),
        }
    }
}

struct Loan {
    layers: Arc<[Layer]>,
    /// One for each layer.
    holds: SmallVec<[Hold; 3]>,
    /// Leaves that are neither told nor given back.
    out: u32,
    /// JavaScript counts for it; else each call is told by itself.
    is_open: bool,
}

impl Loan {
    fn new(layers: &Arc<[Layer]>, most: u32) -> Option<Self> {
        let mut loan = Self { layers: Arc::clone(layers), holds: SmallVec::new(), out: 0, is_open: false };
        let mut got = [0; MAX_LAYERS];
        let mut least = most;
        for (index, layer) in layers.iter().enumerate() {
            match Hold::of(layer, least) {
                Some((hold, some)) => {
                    loan.holds.push(hold);
                    got[index] = some;
                    least = some;
                }
                None => {
                    loan.trim(&got, 0);
                    return None;
                }
            }
        }
        loan.trim(&got, least);
        loan.out = least;
        Some(loan)
    }

    /// Leave for up to `most` more calls, if all layers give it.
    fn more(&mut self, most: u32) -> u32 {
        let mut got = [0; MAX_LAYERS];
        let mut least = most;
        for (index, hold) in self.holds.iter_mut().enumerate() {
            least = hold.more(least);
            got[index] = least;
            if least == 0 {
                break;
            }
        }
        self.trim(&got, least);
        self.out += least;
        least
    }

    /// Whoever gave more than the others gets it back.
    fn trim(&mut self, got: &[u32; MAX_LAYERS], least: u32) {
        for (hold, got) in self.holds.iter_mut().zip(got) {
            hold.give_back(got.saturating_sub(least));
        }
    }

    fn tell_ok(&mut self, calls: u32) {
        if calls == 0 {
            return;
        }
        for (layer, hold) in self.layers.iter().zip(&mut self.holds).rev() {
            match (layer, hold) {
                (_, Hold::Leaves(leaves)) => leaves.tell_ok(calls),
                (_, Hold::Places(places)) => places.leave(calls),
                (Layer::Retry(retry), Hold::Nothing) => {
                    if let Some(budget) = retry.budget() {
                        (0..calls).for_each(|_| budget.count_call());
                    }
                }
                (_, Hold::Nothing) => {}
            }
        }
        self.out = self.out.saturating_sub(calls);
    }

    fn give_back(&mut self, calls: u32) {
        for hold in &mut self.holds {
            hold.give_back(calls);
        }
        self.out = self.out.saturating_sub(calls);
    }

    /// One call failed. Layers from `inside` on do not know: whatever ended it has dropped them. A retry counts the call
    /// itself when it goes on.
    fn fail(&mut self, result: &Result<(), Failure<Thrown>>, inside: usize) {
        for (index, hold) in self.holds.iter_mut().enumerate().rev() {
            match hold {
                Hold::Leaves(leaves) if index < inside => leaves.tell(&|thrown: &Thrown| thrown.class(index), result),
                Hold::Leaves(leaves) => leaves.give_back(1),
                Hold::Places(places) => places.leave(1),
                Hold::Nothing => {}
            }
        }
        self.out = self.out.saturating_sub(1);
    }
}

/// Guards with more layers take the long way.
pub const MAX_LAYERS: usize = 8;

/// Whether a guard is in a rush: whether what it lends is used within the turn. Lending costs a little (somebody has to look
/// at the end of the turn), so after a loan that was hardly used it is tried less and less often.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// So many calls are let in one by one before the next loan.
    to_come: u32,
    /// How many that were last time.
    patience: u32,
    /// Leaves that were lent in this turn.
    lent: u32,
}

impl Pace {
    const SHORT: u32 = 4;
    const LONG: u32 = 1 << 10;
    /// A loan of which so many leaves were used was worth it.
    const WORTH_IT: u32 = 8;

    pub const fn new() -> Self {
        Self { to_come: Self::SHORT, patience: Self::SHORT, lent: 0 }
    }

    fn next(&mut self) -> u32 {
        self.lent = 0;
        match self.to_come.checked_sub(1) {
            Some(less) => {
                self.to_come = less;
                1
            }
            None => MOST,
        }
    }

    fn ended(&mut self, unused: u32) {
        let was_worth_it = self.lent.saturating_sub(unused) >= Self::WORTH_IT;
        self.patience = if was_worth_it { Self::SHORT } else { (self.patience * 2).min(Self::LONG) };
        self.to_come = self.patience;
    }
}

#[derive(Default)]
struct Loans {
    all: Vec<Option<Loan>>,
    free: Vec<u32>,
    /// How many are open.
    open: u32,
}

thread_local! {
    static LOANS: RefCell<Loans> = const { RefCell::new(Loans { all: Vec::new(), free: Vec::new(), open: 0 }) };
}

/// What a guard that was asked says.
pub enum Leave {
    /// Leave for one call, to be told by itself.
    One { key: u32 },
    /// Leave for one call and so many more, to be counted until the turn ends.
    Several { key: u32, more: u32 },
    /// Not while others have leaves that they may not need.
    AfterTheTurn,
    /// Not at once.
    No,
}

impl Loans {
    fn insert(&mut self, loan: Loan) -> u32 {
        let key = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            (self.all.len() - 1) as u32
        });
        self.all[key as usize] = Some(loan);
        key
    }

    fn get(&mut self, key: u32) -> Option<&mut Loan> {
        self.all.get_mut(key as usize)?.as_mut()
    }

    /// Forgets a loan of which nothing is out.
    fn tidy(&mut self, key: u32) {
        if self.get(key).is_some_and(|loan| loan.out == 0 && !loan.is_open) {
            self.all[key as usize] = None;
            self.free.push(key);
        }
    }

    fn close(&mut self, key: u32) {
        if let Some(loan) = self.get(key).filter(|loan| loan.is_open) {
            loan.is_open = false;
            self.open -= 1;
        }
        self.tidy(key);
    }

    fn ask(&mut self, layers: &Layers, ok: u32) -> Leave {
        let mut pace = layers.pace.get();
        if let Some(key) = layers.loan.get() {
            let got = self.get(key).map_or(0, |loan| {
                loan.tell_ok(ok);
                loan.more(MOST)
            });
            if got > 0 {
                pace.lent = pace.lent.saturating_add(got);
                layers.pace.set(pace);
                return Leave::Several { key, more: got - 1 };
            }
            pace.ended(0);
            layers.pace.set(pace);
            layers.loan.set(None);
            self.close(key);
        }
        if self.free.is_empty() && self.all.len() >= KEYS {
            return Leave::No;
        }
        let most = pace.next();
        let Some(loan) = Loan::new(&layers.all, most) else {
            return if self.open > 0 { Leave::AfterTheTurn } else { Leave::No };
        };
        let got = loan.out;
        let key = self.insert(loan);
        pace.lent = got;
        layers.pace.set(pace);
        if got < 2 {
            return Leave::One { key };
        }
        if let Some(loan) = self.get(key) {
            loan.is_open = true;
            self.open += 1;
        }
        layers.loan.set(Some(key));
        Leave::Several { key, more: got - 1 }
    }
}

/// May a call begin? `ok` calls of the open loan ended well.
pub fn ask(layers: &Layers, ok: u32) -> Leave {
    LOANS.with_borrow_mut(|loans| loans.ask(layers, ok))
}

/// The turn is over: what ended well, and what was not needed.
pub fn end_turn(layers: &Layers, ok: u32, unused: u32) {
    let Some(key) = layers.loan.take() else { return };
    let mut pace = layers.pace.get();
    pace.ended(unused);
    layers.pace.set(pace);
    LOANS.with_borrow_mut(|loans| {
        if let Some(loan) = loans.get(key) {
            loan.tell_ok(ok);
            loan.give_back(unused);
        }
        loans.close(key);
    });
}

/// One call of this loan ended well.
pub fn succeed(key: u32) {
    with_loan(key, |loan| loan.tell_ok(1));
}

/// One call of this loan failed. Its layers, and the failure again.
pub fn fail(key: u32, failure: Failure<Thrown>) -> Option<(Arc<[Layer]>, Failure<Thrown>)> {
    with_loan(key, |loan| {
        let result = Err(failure);
        loan.fail(&result, loan.holds.len());
        Some((Arc::clone(&loan.layers), result.err()?))
    })?
}

/// One call of this loan was not over in time: the same.
pub fn fail_late(key: u32) -> Option<(Arc<[Layer]>, Failure<Thrown>)> {
    with_loan(key, |loan| {
        let (index, timeout) = shortest(&loan.layers)?;
        let result = Err(Failure::Resil(timeout.overdue()));
        loan.fail(&result, index);
        Some((Arc::clone(&loan.layers), result.err()?))
    })?
}

/// Nobody waits for one call of this loan any more.
pub fn abandon(key: u32) {
    with_loan(key, |loan| loan.fail(&Ok(()), 0));
}

fn with_loan<R>(key: u32, run: impl FnOnce(&mut Loan) -> R) -> Option<R> {
    LOANS.with_borrow_mut(|loans| {
        let done = loans.get(key).map(run);
        loans.tidy(key);
        done
    })
}

/// The timeout that is over first; of those that are at once, the innermost.
pub fn shortest(layers: &[Layer]) -> Option<(usize, &Timeout)> {
    let timeouts = layers.iter().enumerate().filter_map(|(index, layer)| match layer {
        Layer::Timeout(timeout) => Some((index, timeout)),
        _ => None,
    });
    timeouts.rev().min_by_key(|(_, timeout)| timeout.after())
}

/// The guard of this loan is gone.
pub fn close_loan(key: u32) {
    let _ = LOANS.try_with(|loans| loans.borrow_mut().close(key));
}

/// The thread goes away, and what it held is given back.
pub fn close() {
    let loans = LOANS.try_with(RefCell::take);
    drop(loans);
}
