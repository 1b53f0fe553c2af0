//! Destroying buffers on a thread of their own, for plugins whose destroy call blocks.

use crossbeam_channel::{Sender, bounded};

use super::buffer::Doomed;

/// Deep enough that a dispatch thread does not meet the end of it in steady state; full, it makes the dropper wait.
const DEPTH: usize = 4096;

pub(crate) struct Reaper {
    doomed: Sender<Doomed>,
}

impl Reaper {
    /// Starts the thread; `None` where the system gives no thread, and then buffers are destroyed in place.
    pub(super) fn start() -> Option<Self> {
        let (doomed, inbox) = bounded::<Doomed>(DEPTH);
        std::thread::Builder::new()
            .name("pjrt-reaper".into())
            .spawn(move || {
                for buffer in inbox {
                    drop(buffer);
                }
            })
            .ok()?;
        Some(Self { doomed })
    }

    /// Hands a buffer over; dropping what comes back destroys it here, should the thread be gone.
    pub(super) fn bury(&self, buffer: Doomed) {
        drop(self.doomed.send(buffer));
    }
}
