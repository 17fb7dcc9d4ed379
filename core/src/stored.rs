//! What every machine says of its state so that it can be stored, sent and collected. The list of machines is
//! [`machines!`](crate::machines); what is the same for all of them is written once, over that list.

use alloc::boxed::Box;

use crate::codec::{Buffer, Malformed};
use crate::time::Instant;

/// A machine whose state is stored under a key.
pub trait Stored: Sized + 'static {
    type State: Default + Clone + Send;
    /// What a step did to the state, with absolute values.
    type Edits: Clone;

    /// The first byte of a whole state.
    const WHOLE: u8;
    /// The first byte of edits; `None` if the machine always sends its state whole.
    const EDITS: Option<u8>;

    fn encode(state: &Self::State, out: &mut impl Buffer);
    /// Whether it can be too large to be written, or copied, as a whole.
    const IN_PIECES: bool = false;
    /// The state in pieces, if it can be too large for one: the first is a whole state, the others are edits to it.
    fn encode_pieces(state: &Self::State, emit: &mut dyn FnMut(&[u8])) {
        emit(&crate::codec::to_vec(|out| Self::encode(state, out)));
    }
    /// Takes a further piece over into a state that is being read in pieces.
    fn load_piece(state: &mut Self::State, bytes: &[u8]) -> Result<(), Malformed> {
        Self::apply_all(state, Self::decode_edits(bytes)?);
        Ok(())
    }
    /// All pieces are there.
    fn loaded(_state: &mut Self::State) {}
    /// True if nothing is missing of a state that was read in pieces.
    fn is_whole(_state: &Self::State) -> bool {
        true
    }
    /// Trusts nothing: what it accepts can be stepped.
    fn decode(bytes: &[u8]) -> Result<Self::State, Malformed>;
    fn decode_edits(_bytes: &[u8]) -> Result<Self::Edits, Malformed> {
        Err(Malformed)
    }
    /// Makes the edits, as the server that decided did.
    fn apply_all(state: &mut Self::State, edits: Self::Edits);

    /// True if there is nothing worth storing.
    fn is_nothing(_state: &Self::State) -> bool {
        false
    }
    /// When nothing in the state can matter any more; `None` is never.
    fn collect_at(state: &Self::State, salt: u64) -> Option<Instant>;
    fn heap_bytes(state: &Self::State) -> usize;
    /// About the same, without looking at every part: asked before and after each change.
    fn bytes_about(state: &Self::State) -> usize {
        Self::heap_bytes(state)
    }
    /// Parts to free one by one.
    fn parts(_state: &Self::State) -> usize {
        4
    }
}

/// A machine that nobody waits for: a key is its state, and nothing else.
pub trait Plain: Stored<State = Self> + Default + Clone {
    fn encode_edits(edits: &Self::Edits, out: &mut impl Buffer);
}

/// A key's state as it travels from a primary to a replica, or through an append-only file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent<S, E> {
    Whole(Box<S>),
    Edits(E),
}

/// What is sent of machine `M`.
pub type SentOf<M> = Sent<<M as Stored>::State, <M as Stored>::Edits>;

/// `None` if the bytes are not of machine `M`.
pub(crate) fn decode_sent<M: Stored>(bytes: &[u8]) -> Option<Result<SentOf<M>, Malformed>> {
    let tag = *bytes.first()?;
    if tag == M::WHOLE {
        return Some(M::decode(bytes).map(|state| Sent::Whole(Box::new(state))));
    }
    (Some(tag) == M::EDITS).then(|| M::decode_edits(bytes).map(Sent::Edits))
}
