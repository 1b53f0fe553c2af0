//! Device buffers.
#![expect(unsafe_code, reason = "calls into the plugin")]

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::client::Client;
use super::event::Event;
use super::fork::forked;
use super::plugin::Plugin;
use super::reaper::Reaper;
use crate::error::{Error, Result};
use crate::sys::types::{
    BufferCopyToDevice, BufferDataPointer, BufferDestroy, BufferDimensions, BufferIsDeleted,
    BufferReadyEvent, BufferReference, BufferSize, BufferToHost, MemoryLayout, Opaque,
};

/// An array in device memory, destroyed on drop. Work that still reads it keeps its memory alive.
pub struct Buffer {
    raw: RawBuffer,
    plugin: &'static Plugin,
}

/// The bare pointer of a [`Buffer`], for argument lists. Whoever makes one keeps its buffer alive
/// until the call it is passed to returns.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct RawBuffer(NonNull<c_void>);

// SAFETY: PJRT buffers may be used from any thread.
unsafe impl Send for RawBuffer {}
// SAFETY: as above; the plugin synchronises.
unsafe impl Sync for RawBuffer {}

/// A buffer on its way to the reaper; destroyed in place when dropped.
pub(super) struct Doomed {
    raw: RawBuffer,
    plugin: &'static Plugin,
}

impl Drop for Doomed {
    fn drop(&mut self) {
        let mut args = BufferDestroy::new();
        args.buffer = self.raw.0.as_ptr();
        // SAFETY: this object owns the buffer. A failure to free leaves nothing to do, hence `drop`.
        drop(unsafe { self.plugin.table.buffer_destroy(&mut args) });
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        if forked() {
            return;
        }
        let doomed = Doomed {
            raw: self.raw,
            plugin: self.plugin,
        };
        if self.plugin.destroy_blocks()
            && let Some(reaper) = self.plugin.reaper.get_or_init(Reaper::start)
        {
            reaper.bury(doomed);
        }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Buffer").field(&self.raw.0).finish()
    }
}

impl Buffer {
    /// Takes over a buffer that `call` returned.
    ///
    /// # Safety
    /// `raw` is null, or a buffer of `plugin` that nobody else destroys.
    pub(super) unsafe fn own(
        plugin: &'static Plugin,
        raw: Opaque,
        call: &'static str,
    ) -> Result<Self> {
        let raw = NonNull::new(raw).ok_or(Error::NullResult {
            call,
            what: "buffer",
        })?;
        Ok(Self {
            raw: RawBuffer(raw),
            plugin,
        })
    }

    /// The pointer to pass to [`Executable::execute`](crate::Executable::execute).
    #[inline]
    #[must_use]
    pub fn as_raw(&self) -> RawBuffer {
        self.raw
    }

    fn opaque(&self) -> Opaque {
        self.raw.0.as_ptr()
    }

    /// Copies the array to `dst` in row-major order, and waits until it is there.
    ///
    /// # Errors
    /// The error of the program that should have produced the array, or the plugin's refusal of a `dst` that is too small.
    pub fn copy_to_host(&self, dst: &mut [u8]) -> Result<()> {
        if self.plugin.host_memory.load(Ordering::Relaxed) {
            self.wait()?;
            let bytes = self.byte_size()?;
            if let Some(dst) = dst.get_mut(..bytes) {
                return self.copy_from_own_memory(dst);
            }
        }
        self.copy_by_plugin(dst)
    }

    /// The plugin would copy on another thread, and waking that costs up to a hundred times this copy.
    /// Programs on the CPU leave their results row-major.
    fn copy_from_own_memory(&self, dst: &mut [u8]) -> Result<()> {
        if dst.is_empty() {
            return Ok(());
        }
        let table = &self.plugin.table;
        let mut reference = BufferReference::new();
        reference.buffer = self.opaque();
        let guard = self.plugin.references.lock();
        // SAFETY: the buffer is live.
        unsafe { table.buffer_add_reference(&mut reference) }?;
        drop(guard);

        let mut args = BufferDataPointer::new();
        args.buffer = self.opaque();
        // SAFETY: the buffer is live.
        let found = unsafe { table.buffer_data_pointer(&mut args) };
        if found.is_ok() && !args.data.is_null() {
            // SAFETY: a CPU buffer holds its size in this process's memory, and while the reference
            // lasts no program can take that memory over and write to it.
            unsafe {
                args.data
                    .cast::<u8>()
                    .copy_to_nonoverlapping(dst.as_mut_ptr(), dst.len())
            };
        }
        let guard = self.plugin.references.lock();
        // SAFETY: gives back the reference taken above.
        let released = unsafe { table.buffer_drop_reference(&mut reference) };
        drop(guard);
        found.and(released)?;
        if args.data.is_null() {
            let call = "PJRT_Buffer_OpaqueDeviceMemoryDataPointer";
            return Err(Error::NullResult {
                call,
                what: "address",
            });
        }
        Ok(())
    }

    fn copy_by_plugin(&self, dst: &mut [u8]) -> Result<()> {
        // Without a layout the plugin writes in device order, which off the CPU need not be row-major.
        let rank = i64::try_from(self.rank()?).unwrap_or(i64::MAX);
        let minor_to_major: SmallVec<[i64; 8]> = (0..rank).rev().collect();
        let mut layout = MemoryLayout::dense(&minor_to_major);

        let mut args = BufferToHost::new();
        args.buffer = self.opaque();
        if rank > 1 {
            args.host_layout = &raw mut layout;
        }
        args.dst = dst.as_mut_ptr().cast();
        args.dst_size = dst.len();
        // SAFETY: `dst` stays borrowed until the event below has fired, and the plugin checks its size.
        unsafe { self.plugin.table.buffer_to_host(&mut args) }?;
        // SAFETY: the event belongs to this call.
        unsafe { Event::own(&self.plugin.table, args.event) }.wait()
    }

    fn rank(&self) -> Result<usize> {
        let mut args = BufferDimensions::new();
        args.buffer = self.opaque();
        // SAFETY: the buffer is live.
        unsafe { self.plugin.table.buffer_dimensions(&mut args) }?;
        Ok(args.num_dims)
    }

    /// Bytes on the device, with the padding of its layout.
    ///
    /// # Errors
    /// When the buffer was donated.
    pub fn byte_size(&self) -> Result<usize> {
        let mut args = BufferSize::new();
        args.buffer = self.opaque();
        // SAFETY: the buffer is live.
        unsafe { self.plugin.table.buffer_size(&mut args) }?;
        Ok(args.bytes)
    }

    /// Whether its memory is gone, because a program took it over.
    ///
    /// # Errors
    /// Only those of the call itself.
    pub fn is_deleted(&self) -> Result<bool> {
        let mut args = BufferIsDeleted::new();
        args.buffer = self.opaque();
        // SAFETY: the buffer is live.
        unsafe { self.plugin.table.buffer_is_deleted(&mut args) }?;
        Ok(args.is_deleted)
    }

    /// Waits until the array is computed.
    ///
    /// # Errors
    /// The error of the program that should have produced it.
    pub fn wait(&self) -> Result<()> {
        self.ready_event()?.wait()
    }

    /// Whether the array is computed, or its program failed.
    ///
    /// # Errors
    /// When the buffer was donated.
    pub fn is_ready(&self) -> Result<bool> {
        self.ready_event()?.is_ready()
    }

    fn ready_event(&self) -> Result<Event> {
        let mut args = BufferReadyEvent::new();
        args.buffer = self.opaque();
        // SAFETY: the buffer is live.
        unsafe { self.plugin.table.buffer_ready_event(&mut args) }?;
        // SAFETY: the event belongs to this call.
        Ok(unsafe { Event::own(&self.plugin.table, args.event) })
    }

    /// Copies to another device of the same client, asynchronously.
    ///
    /// # Errors
    /// [`Error::Device`], or the plugin's refusal.
    pub fn copy_to_device(&self, client: &Client, device: usize) -> Result<Self> {
        let mut args = BufferCopyToDevice::new();
        args.buffer = self.opaque();
        args.device = client.device_ptr(device)?;
        // SAFETY: buffer and device are live.
        unsafe { self.plugin.table.buffer_copy_to_device(&mut args) }?;
        // SAFETY: the copy belongs to the caller.
        unsafe { Self::own(self.plugin, args.copy, "PJRT_Buffer_CopyToDevice") }
    }
}
