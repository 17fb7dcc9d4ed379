//! The module's section of INFO, field by field.

use std::ffi::CString;

use redis_module::raw;

use super::api;

pub struct Section(*mut raw::RedisModuleInfoCtx);

impl Section {
    /// Begins the section. `ctx` is the one of the report that the server asks for.
    pub fn open(ctx: *mut raw::RedisModuleInfoCtx) -> Self {
        // SAFETY: the server's context for this report; an empty name is the module's own section.
        unsafe { api!(RedisModule_InfoAddSection)(ctx, c"".as_ptr()) };
        Self(ctx)
    }

    pub fn count(&self, name: &str, count: u64) {
        let Ok(name) = CString::new(name) else { return };
        // SAFETY: as above; the server copies the name.
        unsafe { api!(RedisModule_InfoAddFieldULongLong)(self.0, name.as_ptr(), count) };
    }

    pub fn number(&self, name: &str, number: i64) {
        let Ok(name) = CString::new(name) else { return };
        // SAFETY: as above.
        unsafe { api!(RedisModule_InfoAddFieldLongLong)(self.0, name.as_ptr(), number) };
    }

    pub fn text(&self, name: &str, text: &str) {
        let (Ok(name), Ok(text)) = (CString::new(name), CString::new(text)) else { return };
        // SAFETY: as above; the server copies both.
        unsafe { api!(RedisModule_InfoAddFieldCString)(self.0, name.as_ptr(), text.as_ptr()) };
    }

    /// Several numbers in one field.
    pub fn dictionary(&self, name: &str, write: impl FnOnce(&Self)) {
        let Ok(name) = CString::new(name) else { return };
        // SAFETY: as above; the field is ended before another begins.
        unsafe { api!(RedisModule_InfoBeginDictField)(self.0, name.as_ptr()) };
        write(self);
        // SAFETY: as above.
        unsafe { api!(RedisModule_InfoEndDictField)(self.0) };
    }
}
