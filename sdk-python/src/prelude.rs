//! The vocabulary of the binding: what its files use of each other, of pyo3 and of the SDK.

pub use std::sync::Arc;

pub use parking_lot::Mutex;
pub use pyo3::exceptions::{PyRuntimeError, PyTypeError};
pub use pyo3::prelude::*;
pub use pyo3::types::{PyBytes, PyDict, PyTuple};
pub use pyo3::{IntoPyObjectExt, PyClass, PyTraverseError, PyVisit, intern};
pub use resil::{Error, Failure};

pub use crate::around::{Around, Call, Needs, OfCall, Runs};
pub use crate::block::{Block, Enters, Entrant};
pub use crate::codec::{Codec, unrecorded};
pub use crate::convert::{
    Arg, Args, Kwargs, OptArg, key, optional_seconds, optional_text, python_bool, read, read_beside, seconds, shown,
    spelled, text, truth, whole,
};
pub use crate::drive::{Object, Running, drive, none, poll_caught, refuse_to_block};
pub use crate::edge::OfProcess;
pub use crate::entered::{Entered, Who};
pub use crate::errors::{exception, ours, raised, raised_later, wrong_type, wrong_value};
pub use crate::event_loop::{EventLoop, Waiter};
pub use crate::judge::{Judge, Which};
pub use crate::kind::{Kind, is_coroutine};
pub use crate::leased::{GuardCell, Leased, Leases, PyHeld};
pub use crate::lost::{Lost, Watch};
pub use crate::pending::Pending;
pub use crate::runtime::{Generation, Owned};
pub use crate::task::{LoopTask, Prepared};
pub use crate::testing::{Mode, PyClock};
pub use crate::trace::{of_caller, traced};
pub use crate::work::{Ended, How, Resume, SharedStage, Work, failure, flat};
pub(crate) use crate::{entered, event_loop, imported, listeners, runtime, task};
