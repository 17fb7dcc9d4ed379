//! The generations of one cache name: what its tags, and the name as a whole, were last invalidated at.
//!
//! # The promise
//! What was loaded before a tag of it was invalidated, or before the name was cleared, is never served after. Both cost the same
//! however many values there are: one number is written, no value is touched.
//!
//! # How
//! The key holds a number that only grows, the *current generation*. The leader of a load gets the current one, and
//! what it loads carries that number and its tags. An invalidation raises the current one and writes it down as the mark of
//! the tag, or of the whole name. A value is good while no mark that concerns it is above its number. So an invalidation
//! wins against every load that began before it, also if that is published after it.
//!
//! ```text
//!   current      the last generation that was given
//!   all          the mark of the name
//!   tags         the marks of tags, at most TAGS_REMEMBERED; the older half is forgotten when there are more
//!   forgotten    the highest of the marks that were forgotten: the mark of every tag that is not in the table
//!   kept_until   nothing under the name lives longer
//! ```
//! A mark is two numbers: what is older than the first is gone, what is older than the second is stale.
//!
//! # When something is missing
//! - Without the key (evicted, deleted, never made) everything under it is void. JOIN makes it anew, with a mark of the whole
//!   name above every generation that was ever given. So losing the key costs loads, and never serves what was invalidated.
//! - A tag that was forgotten counts as invalidated when the last one was that was forgotten with it. That is later than it was: it costs loads.
//!
//! # Invariants
//! 1. No mark is above the current generation, and the current one only grows.
//! 2. There are at most TAGS_REMEMBERED tags.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use smallvec::{SmallVec, smallvec};

use crate::codec::{self, Buffer, Malformed, Reader, Writer};
use crate::limits::{FENCE_MAX, TAG_MAX, TAGS_REMEMBERED};
use crate::step::Step;
use crate::stored::{Plain, Stored};
use crate::time::{Instant, Span};
use crate::waited::Floor;

/// The key is kept so much longer than it has to be, so that it is seldom written.
const SPARE: Span = Span::from_secs(3_600);

/// What is older than `hard` is gone; what is older than `soft` is stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    pub hard: u64,
    pub soft: u64,
}

impl Mark {
    fn max(self, other: Self) -> Self {
        Self { hard: self.hard.max(other.hard), soft: self.soft.max(other.soft) }
    }

    fn highest(self) -> u64 {
        self.hard.max(self.soft)
    }

    fn raise(&mut self, generation: u64, leaves: Leaves) {
        match leaves {
            Leaves::Nothing => self.hard = generation,
            Leaves::Stale => self.soft = generation,
        }
    }
}

/// What an invalidation leaves of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaves {
    Nothing,
    /// It may be served as stale.
    Stale,
}

/// What a value that was stored is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    Good,
    Stale,
    Void,
}

/// The default is no key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generations {
    current: u64,
    all: Mark,
    forgotten: Mark,
    /// Shared with those who look at it while another step is taken.
    tags: Arc<BTreeMap<Box<[u8]>, Mark>>,
    kept_until: Instant,
}

impl Default for Generations {
    fn default() -> Self {
        let none = Mark::default();
        Self { current: 0, all: none, forgotten: none, tags: Arc::default(), kept_until: Instant::EPOCH }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GenerationEdit {
    Born {
        generation: u64,
        until: Instant,
    },
    Extended {
        until: Instant,
    },
    Cleared {
        generation: u64,
        leaves: Leaves,
    },
    Tagged {
        tag: Box<[u8]>,
        generation: u64,
        leaves: Leaves,
    },
    /// Tags whose marks are at or below this.
    Forgot {
        through: u64,
    },
}

pub type GenerationEdits = SmallVec<[GenerationEdit; 1]>;

impl Generations {
    /// The generation of what begins to be loaded now; 0 if there is no key.
    pub fn current(&self) -> u64 {
        self.current
    }

    pub fn exists(&self) -> bool {
        self.current > 0
    }

    /// How many tags it remembers.
    pub fn tags(&self) -> usize {
        self.tags.len()
    }

    fn mark<T: AsRef<[u8]>>(&self, tags: &[T]) -> Mark {
        let of = |tag: &T| self.tags.get(tag.as_ref()).copied().unwrap_or(self.forgotten);
        tags.iter().map(of).fold(self.all, Mark::max)
    }

    /// What a value of `generation` with these tags is worth.
    pub fn validity<T: AsRef<[u8]>>(&self, generation: u64, tags: &[T]) -> Validity {
        let mark = self.mark(tags);
        if !self.exists() || mark.hard > generation {
            Validity::Void
        } else if mark.soft > generation {
            Validity::Stale
        } else {
            Validity::Good
        }
    }

    /// A load of `generation` is under way: does anything since void it?
    pub fn voids<T: AsRef<[u8]>>(&self, generation: u64, tags: &[T]) -> bool {
        self.validity(generation, tags) != Validity::Good
    }

    fn next(&self, floor: &mut Floor, now: Instant) -> u64 {
        // The key's own number, which a client may have restored, is not the server's.
        floor.issue(0, now).max(self.current.saturating_add(1)).min(FENCE_MAX)
    }

    fn apply(&mut self, edit: GenerationEdit) {
        match edit {
            GenerationEdit::Born { generation, until } => {
                *self = Self { current: generation, kept_until: until, ..Self::default() };
                self.all.hard = generation;
            }
            GenerationEdit::Extended { until } => self.kept_until = self.kept_until.max(until),
            GenerationEdit::Cleared { generation, leaves } => {
                self.current = self.current.max(generation);
                self.all.raise(generation, leaves);
                self.forget_below_all();
            }
            GenerationEdit::Tagged { tag, generation, leaves } => {
                self.current = self.current.max(generation);
                // What was forgotten of it still counts.
                let forgotten = self.forgotten;
                let tags = Arc::make_mut(&mut self.tags);
                tags.entry(tag).or_insert(forgotten).raise(generation, leaves);
            }
            GenerationEdit::Forgot { through } => {
                let mut forgotten = self.forgotten;
                Arc::make_mut(&mut self.tags).retain(|_, mark| {
                    let stays = mark.highest() > through;
                    if !stays {
                        forgotten = forgotten.max(*mark);
                    }
                    stays
                });
                self.forgotten = forgotten;
            }
        }
    }

    /// A mark that says no more than that of the whole name says nothing.
    fn forget_below_all(&mut self) {
        let all = self.all;
        let says_more = |mark: Mark| mark.hard > all.hard || mark.soft > all.soft.max(all.hard);
        if self.tags.values().any(|mark| !says_more(*mark)) {
            Arc::make_mut(&mut self.tags).retain(|_, mark| says_more(*mark));
        }
        if !says_more(self.forgotten) {
            self.forgotten = Mark::default();
        }
    }
}

/// A load begins under the name: its generation. The key is made if it is missing.
pub fn begin(state: &Generations, floor: &mut Floor, now: Instant) -> Step<u64, GenerationEdits> {
    if state.exists() {
        return Step::unchanged(state.current);
    }
    let generation = floor.issue(0, now);
    let until = now.plus(SPARE);
    Step::changed(generation, smallvec![GenerationEdit::Born { generation, until }])
}

/// Something under the name lives until `until`.
pub fn extend(state: &Generations, until: Instant) -> Step<(), GenerationEdits> {
    if !state.exists() || state.kept_until >= until {
        return Step::unchanged(());
    }
    let edit = GenerationEdit::Extended { until: until.plus(SPARE) };
    Step::changed((), smallvec![edit])
}

/// Everything with one of these tags, or without tags everything under the name, is out of date. Returns the generation from
/// which on it is not.
pub fn clear(
    state: &Generations,
    tags: &[&[u8]],
    leaves: Leaves,
    floor: &mut Floor,
    now: Instant,
) -> Step<u64, GenerationEdits> {
    let generation = state.next(floor, now);
    if !state.exists() {
        // Everything is void as it is, and stays so when the key is made.
        return Step::unchanged(generation);
    }
    let mut edits = GenerationEdits::new();
    if tags.is_empty() {
        edits.push(GenerationEdit::Cleared { generation, leaves });
        return Step::changed(generation, edits);
    }
    let new = tags.iter().filter(|tag| !state.tags.contains_key(**tag)).count();
    if state.tags.len() + new > TAGS_REMEMBERED {
        let mut marks: Vec<u64> = state.tags.values().map(|mark| mark.highest()).collect();
        let (_, median, _) = marks.select_nth_unstable(TAGS_REMEMBERED / 2);
        edits.push(GenerationEdit::Forgot { through: *median });
    }
    edits.extend(tags.iter().map(|tag| GenerationEdit::Tagged { tag: (*tag).into(), generation, leaves }));
    Step::changed(generation, edits)
}

impl Stored for Generations {
    type State = Self;
    type Edits = GenerationEdits;
    const WHOLE: u8 = codec::GENERATIONS;
    const EDITS: Option<u8> = Some(codec::GENERATION_EDITS);

    /// `N current hard soft hard soft kept-until n`, then per tag, in their order: `tag hard soft`.
    fn encode(state: &Self, out: &mut impl Buffer) {
        let mut out = Writer::new(out);
        out.byte(codec::GENERATIONS);
        out.number(state.current);
        write_mark(state.all, &mut out);
        write_mark(state.forgotten, &mut out);
        out.number(state.kept_until.as_us().cast_unsigned());
        out.number(state.tags.len() as u64);
        for (tag, mark) in &*state.tags {
            out.text(tag);
            write_mark(*mark, &mut out);
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut bytes = Reader::tagged(bytes, codec::GENERATIONS)?;
        let current = read_generation(&mut bytes)?;
        let (all, forgotten) = (read_mark(&mut bytes)?, read_mark(&mut bytes)?);
        let kept_until = bytes.instant()?;
        let mut tags: BTreeMap<Box<[u8]>, Mark> = BTreeMap::new();
        let mut highest = all.max(forgotten).highest();
        for _ in 0..bytes.count(TAGS_REMEMBERED)? {
            let (tag, mark) = (read_tag(&mut bytes)?, read_mark(&mut bytes)?);
            if tags.last_key_value().is_some_and(|(last, _)| *last >= tag) {
                return Err(Malformed);
            }
            highest = highest.max(mark.highest());
            tags.insert(tag, mark);
        }
        bytes.end()?;
        if highest > current || all.hard == 0 {
            return Err(Malformed);
        }
        Ok(Self { current, all, forgotten, tags: Arc::new(tags), kept_until })
    }

    fn decode_edits(bytes: &[u8]) -> Result<GenerationEdits, Malformed> {
        let mut bytes = Reader::tagged(bytes, codec::GENERATION_EDITS)?;
        let mut edits = GenerationEdits::new();
        while !bytes.is_empty() {
            edits.push(match bytes.bytes(1)?[0] {
                0 => GenerationEdit::Born { generation: read_generation(&mut bytes)?, until: bytes.instant()? },
                1 => GenerationEdit::Extended { until: bytes.instant()? },
                2 => GenerationEdit::Cleared {
                    generation: read_generation(&mut bytes)?,
                    leaves: read_leaves(&mut bytes)?,
                },
                3 => GenerationEdit::Tagged {
                    tag: read_tag(&mut bytes)?,
                    generation: read_generation(&mut bytes)?,
                    leaves: read_leaves(&mut bytes)?,
                },
                4 => GenerationEdit::Forgot { through: read_generation(&mut bytes)? },
                _ => return Err(Malformed),
            });
        }
        if edits.is_empty() { Err(Malformed) } else { Ok(edits) }
    }

    fn apply_all(state: &mut Self, edits: GenerationEdits) {
        edits.into_iter().for_each(|edit| state.apply(edit));
        debug_assert!(state.tags.values().all(|mark| mark.highest() <= state.current), "{state:?}");
    }

    fn is_nothing(state: &Self) -> bool {
        !state.exists()
    }

    fn collect_at(state: &Self, _salt: u64) -> Option<Instant> {
        Some(state.kept_until)
    }

    fn heap_bytes(state: &Self) -> usize {
        const NODE: usize = size_of::<(Box<[u8]>, Mark)>() + 2 * size_of::<usize>();
        state.tags.keys().map(|tag| tag.len() + NODE).sum()
    }

    fn parts(state: &Self) -> usize {
        1 + state.tags.len()
    }
}

impl Plain for Generations {
    fn encode_edits(edits: &GenerationEdits, out: &mut impl Buffer) {
        let mut out = Writer::new(out);
        out.byte(codec::GENERATION_EDITS);
        for edit in edits {
            match edit {
                GenerationEdit::Born { generation, until } => {
                    out.byte(0);
                    out.number(*generation);
                    out.number(until.as_us().cast_unsigned());
                }
                GenerationEdit::Extended { until } => {
                    out.byte(1);
                    out.number(until.as_us().cast_unsigned());
                }
                GenerationEdit::Cleared { generation, leaves } => {
                    out.byte(2);
                    out.number(*generation);
                    out.byte(*leaves as u8);
                }
                GenerationEdit::Tagged { tag, generation, leaves } => {
                    out.byte(3);
                    out.text(tag);
                    out.number(*generation);
                    out.byte(*leaves as u8);
                }
                GenerationEdit::Forgot { through } => {
                    out.byte(4);
                    out.number(*through);
                }
            }
        }
    }
}

/// A tag as it is stored.
pub(crate) fn read_tag(bytes: &mut Reader<'_>) -> Result<Box<[u8]>, Malformed> {
    let tag = bytes.text(TAG_MAX)?;
    if tag.is_empty() { Err(Malformed) } else { Ok(tag.into()) }
}

/// Whatever a server issues, by any clock, can be read.
pub(crate) fn read_generation(bytes: &mut Reader<'_>) -> Result<u64, Malformed> {
    let generation = bytes.number()?;
    if generation == 0 || generation > FENCE_MAX { Err(Malformed) } else { Ok(generation) }
}

fn write_mark<B: Buffer>(mark: Mark, out: &mut Writer<'_, B>) {
    out.number(mark.hard);
    out.number(mark.soft);
}

fn read_mark(bytes: &mut Reader<'_>) -> Result<Mark, Malformed> {
    Ok(Mark { hard: bytes.number()?, soft: bytes.number()? })
}

fn read_leaves(bytes: &mut Reader<'_>) -> Result<Leaves, Malformed> {
    match bytes.bytes(1)?[0] {
        0 => Ok(Leaves::Nothing),
        1 => Ok(Leaves::Stale),
        _ => Err(Malformed),
    }
}
