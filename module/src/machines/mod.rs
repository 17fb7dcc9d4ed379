//! The machines that can be waited for, as the mechanism around them wants to know them.

pub mod flight;
pub mod holding;
pub mod idempotency;

/// A static of its own for each machine.
macro_rules! statics {
    ($ask:ty) => {
        fn type_handle() -> &'static std::sync::atomic::AtomicPtr<redis_module::raw::RedisModuleType> {
            static HANDLE: std::sync::atomic::AtomicPtr<redis_module::raw::RedisModuleType> =
                std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
            &HANDLE
        }

        fn lines() -> &'static std::thread::LocalKey<std::cell::RefCell<crate::lines::Lines<$ask>>> {
            thread_local! {
                static LINES: std::cell::RefCell<crate::lines::Lines<$ask>> =
                    std::cell::RefCell::new(crate::lines::Lines::default());
            }
            &LINES
        }
    };
}
pub(crate) use statics;
