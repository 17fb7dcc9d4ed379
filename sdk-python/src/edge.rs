//! All unsafe code of the binding: what CPython and forks need beyond what pyo3 offers.
//!
//! - Python code in a destructor. A destructor runs whenever the last reference goes, also while an exception is on its way. Python code that runs there
//!   overwrites that exception, or crashes. So the exception is set aside first, and put back afterwards.
//! - A thread that outlives the interpreter. One that asks for the GIL while the interpreter ends is unwound by CPython (before 3.14), through Rust frames that
//!   abort the process. So such a thread sleeps instead, as it does from 3.14 on; the process ends without it.
//! - What belongs to one process. A child of a fork can neither use nor drop its parent's: the threads behind it are gone, and
//!   may have left a mutex locked.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::runtime::Generation;

/// Something of the process that made it. A child of a fork does not drop it: to drop a connection, a timer or a task is to ask the
/// threads of the parent's runtime, which are not there, for locks that they may hold for ever.
#[derive(Clone)]
pub struct OfProcess<T> {
    value: ManuallyDrop<T>,
    generation: Generation,
}

impl<T> OfProcess<T> {
    pub fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), generation: Generation::now() }
    }

    pub fn into_inner(mut self) -> T {
        // SAFETY: what is taken is not dropped here any more.
        let value = unsafe { ManuallyDrop::take(&mut self.value) };
        std::mem::forget(self);
        value
    }

    pub fn clone_value(&self) -> T
    where
        T: Clone,
    {
        T::clone(&self.value)
    }

    pub fn generation(&self) -> Generation {
        self.generation
    }
}

impl<T> Deref for OfProcess<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for OfProcess<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if self.generation.is_here() {
            // SAFETY: it is dropped here alone, once, and nobody can use it afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

/// Made when it is first needed, and never freed.
pub struct PerProcess<T>(AtomicPtr<T>);

impl<T: Send + Sync + 'static> PerProcess<T> {
    pub const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// What is there, if it was needed before.
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: it came from `Box::into_raw` in `store`, and is never freed.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    pub fn get_or_make<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&'static T, E> {
        let mut found = self.0.load(Ordering::Acquire);
        if found.is_null() {
            found = self.store(Box::new(make()?));
        }
        // SAFETY: it came from `Box::into_raw` in `store`, and is never freed.
        Ok(unsafe { &*found })
    }

    fn store(&self, made: Box<T>) -> *mut T {
        let ours = Box::into_raw(made);
        match self.0.compare_exchange(std::ptr::null_mut(), ours, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => ours,
            Err(theirs) => {
                // SAFETY: it came from `Box::into_raw`, and no other thread has seen it.
                drop(unsafe { Box::from_raw(ours) });
                theirs
            }
        }
    }

    /// In a child of a fork: the parent's is left where it is.
    pub fn leave_behind(&self) {
        self.0.store(std::ptr::null_mut(), Ordering::Release);
    }
}

/// The exception that was raised; put back when this is dropped.
struct SetAside {
    kind: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    traceback: *mut ffi::PyObject,
}

impl SetAside {
    fn take(_py: Python<'_>) -> Self {
        let (mut kind, mut value, mut traceback) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the thread is attached, and the pointers are ours to be written to.
        unsafe { ffi::PyErr_Fetch(&raw mut kind, &raw mut value, &raw mut traceback) };
        Self { kind, value, traceback }
    }
}

impl Drop for SetAside {
    fn drop(&mut self) {
        // SAFETY: what was fetched is given back, once, on the thread it came from; nulls clear what is raised.
        unsafe { ffi::PyErr_Restore(self.kind, self.value, self.traceback) };
    }
}

/// Runs Python code in a destructor. Not while the interpreter ends: what it would need may be gone.
pub fn in_destructor(work: impl FnOnce(Python<'_>)) {
    // Not attached: the interpreter is gone, and nobody is left to hear of it.
    let _ = Python::try_attach(|py| {
        let _raised = SetAside::take(py);
        if !is_finalizing(py) {
            work(py);
        }
    });
}

/// Runs Python code on a thread of ours. If the interpreter ends meanwhile, or has ended, the thread stays inside for ever.
pub fn attached<T>(work: impl FnOnce(Python<'_>) -> T) -> T {
    match Python::try_attach(work) {
        Some(done) => done,
        None => stay(),
    }
}

/// Whether the interpreter ends.
fn is_finalizing(py: Python<'_>) -> bool {
    // SAFETY: what comes back is borrowed from the module `sys`, and null once that is cleared.
    let found = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PySys_GetObject(c"is_finalizing".as_ptr())) };
    let asked = found.map(|is_finalizing| is_finalizing.call0().and_then(|reply| reply.is_truthy()));
    !matches!(asked, Some(Ok(false)))
}

/// Calls a function of Python's. If the interpreter ends meanwhile, the thread stays inside for ever.
pub fn call<'py>(
    func: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let kwargs = kwargs.map_or(std::ptr::null_mut(), |kwargs| kwargs.as_ptr());
    // SAFETY: a function of the C ABI is one that may unwind, too; only under that name does the compiler expect it to.
    let call: Call = unsafe { std::mem::transmute(ffi::PyObject_Call as CallWithoutUnwinding) };
    // A compiler that knew which function it is would take it at its first word, and drop the guard's landing pad.
    let call = std::hint::black_box(call);
    let guard = Sleep;
    // SAFETY: the thread is attached, the arguments are borrowed from objects that outlive the call, and kwargs may be null.
    let returned = unsafe { call(func.as_ptr(), args.as_ptr(), kwargs) };
    std::mem::forget(guard);
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(func.py(), returned) }
}

/// The same for a method with one argument.
pub fn call_method1<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
    argument: Py<PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    call(&object.getattr(name)?, &PyTuple::new(object.py(), [argument])?, None)
}

type Object = *mut ffi::PyObject;
type Call = unsafe extern "C-unwind" fn(Object, Object, Object) -> Object;
type CallWithoutUnwinding = unsafe extern "C" fn(Object, Object, Object) -> Object;

fn stay() -> ! {
    loop {
        std::thread::park();
    }
}

struct Sleep;

impl Drop for Sleep {
    fn drop(&mut self) {
        // Nothing of ours panics inside, so this is CPython that takes the thread down.
        stay();
    }
}
