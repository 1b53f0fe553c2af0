//! Knowing that this process is a forked child, where the plugin's threads are gone.
#![expect(unsafe_code, reason = "pthread_atfork")]

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static FORKED: AtomicBool = AtomicBool::new(false);
static REGISTERED: Once = Once::new();

/// Whether this process was forked from one that had loaded a plugin.
#[inline]
#[must_use]
pub fn forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Arranges for children to know; called before the first plugin starts its threads.
pub(crate) fn watch() {
    REGISTERED.call_once(|| {
        // SAFETY: `in_child` only stores to an atomic, which is allowed between fork and exec. The call fails
        // only for want of memory, and then children stay unaware, as in a program without this handler.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}
