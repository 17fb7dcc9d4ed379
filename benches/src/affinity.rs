//! Keeps a server and its client on one core for as long as they take turns. Left alone they are now on one and now on
//! two, where each turn wakes an idle core: several times as dear, and nothing either of them does.

/// Until it is dropped.
pub struct OneCore {
    server: i32,
    before: libc::cpu_set_t,
}

impl OneCore {
    /// `None` where the system does not allow it.
    pub fn share_with(server: u32) -> Option<Self> {
        let server = server.cast_signed();
        // SAFETY: a set is plain bits, all zero is an empty one, and each call is given its size.
        unsafe {
            let (mut before, mut one): (libc::cpu_set_t, libc::cpu_set_t) = (std::mem::zeroed(), std::mem::zeroed());
            let size = size_of::<libc::cpu_set_t>();
            let core = usize::try_from(libc::sched_getcpu()).ok()?;
            libc::CPU_SET(core, &mut one);
            let pinned = libc::sched_getaffinity(0, size, &mut before) == 0
                && libc::sched_setaffinity(0, size, &one) == 0
                && libc::sched_setaffinity(server, size, &one) == 0;
            pinned.then_some(Self { server, before })
        }
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        for process in [0, self.server] {
            // SAFETY: the set is one the system gave.
            unsafe { libc::sched_setaffinity(process, size_of::<libc::cpu_set_t>(), &self.before) };
        }
    }
}
