//! An owned `PJRT_Event`.
#![expect(unsafe_code, reason = "calls into the plugin")]

use crate::error::Result;
use crate::sys::table::Table;
use crate::sys::types::{EventAwait, EventDestroy, EventIsReady, Opaque};

pub(crate) struct Event {
    table: &'static Table,
    raw: Opaque,
}

impl Event {
    /// Takes over an event that a call returned; null stands for "already done".
    ///
    /// # Safety
    /// `raw` is null, or an event that nobody else destroys.
    pub(crate) unsafe fn own(table: &'static Table, raw: Opaque) -> Self {
        Self { table, raw }
    }

    /// Blocks until the event fires, and returns its error.
    pub(crate) fn wait(self) -> Result<()> {
        if self.raw.is_null() {
            return Ok(());
        }
        let mut args = EventAwait::new();
        args.event = self.raw;
        // SAFETY: the event is live until `self` drops.
        unsafe { self.table.event_await(&mut args) }
    }

    pub(crate) fn is_ready(&self) -> Result<bool> {
        if self.raw.is_null() {
            return Ok(true);
        }
        let mut args = EventIsReady::new();
        args.event = self.raw;
        // SAFETY: the event is live until `self` drops.
        unsafe { self.table.event_is_ready(&mut args) }?;
        Ok(args.is_ready)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.raw.is_null() {
            return;
        }
        let mut args = EventDestroy::new();
        args.event = self.raw;
        // SAFETY: this object owns the event. A failure to free leaves nothing to do, hence `drop`.
        drop(unsafe { self.table.event_destroy(&mut args) });
    }
}
