//! Counters anybody may read without a lock, and the ring of recent ops.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tpulab_telemetry::{Event, EventKind, Ring};

use crate::address::MAX_DEVICES;
use crate::registry::{self, OpId};

#[derive(Default)]
pub(crate) struct Counters {
    pub compiled: AtomicU64,
    pub compile_ns: AtomicU64,
    pub executed: AtomicU64,
    pub internal: AtomicU64,
}

pub(crate) static COUNTERS: Counters = Counters {
    compiled: AtomicU64::new(0),
    compile_ns: AtomicU64::new(0),
    executed: AtomicU64::new(0),
    internal: AtomicU64::new(0),
};

struct Memory {
    allocated: AtomicU64,
    peak: AtomicU64,
    allocations: AtomicU64,
    frees: AtomicU64,
}

static MEMORY: [Memory; MAX_DEVICES] = [const {
    Memory {
        allocated: AtomicU64::new(0),
        peak: AtomicU64::new(0),
        allocations: AtomicU64::new(0),
        frees: AtomicU64::new(0),
    }
}; MAX_DEVICES];

static FALLBACK: AtomicBool = AtomicBool::new(false);
static FALLBACKS: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

const RING: usize = 16 * 1024;
static EVENTS: LazyLock<Ring> = LazyLock::new(|| Ring::new(RING));
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

pub(crate) fn allocated(device: usize, nbytes: u64) {
    let memory = &MEMORY[device];
    let now = memory.allocated.fetch_add(nbytes, Ordering::Relaxed) + nbytes;
    memory.peak.fetch_max(now, Ordering::Relaxed);
    memory.allocations.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn freed(device: usize, nbytes: u64) {
    MEMORY[device]
        .allocated
        .fetch_sub(nbytes, Ordering::Relaxed);
    MEMORY[device].frees.fetch_add(1, Ordering::Relaxed);
}

/// Bytes of storages on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MemoryStats {
    pub allocated: u64,
    pub peak: u64,
    pub allocations: u64,
    pub frees: u64,
}

pub fn memory_stats(device: usize) -> MemoryStats {
    let memory = &MEMORY[device.min(MAX_DEVICES - 1)];
    MemoryStats {
        allocated: memory.allocated.load(Ordering::Relaxed),
        peak: memory.peak.load(Ordering::Relaxed),
        allocations: memory.allocations.load(Ordering::Relaxed),
        frees: memory.frees.load(Ordering::Relaxed),
    }
}

pub fn reset_peak_memory(device: usize) {
    let memory = &MEMORY[device.min(MAX_DEVICES - 1)];
    memory
        .peak
        .store(memory.allocated.load(Ordering::Relaxed), Ordering::Relaxed);
}

pub(crate) fn compile_time(took: Duration) {
    COUNTERS
        .compile_ns
        .fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
}

#[inline]
pub(crate) fn op_begin() -> Instant {
    Instant::now()
}

#[inline]
pub(crate) fn op_end(op: OpId, device: usize, started: Instant) {
    COUNTERS.executed.fetch_add(1, Ordering::Relaxed);
    EVENTS.push(Event {
        kind: EventKind::Op,
        subject: op.0,
        device: device as u16,
        start_ns: started.saturating_duration_since(*EPOCH).as_nanos() as u64,
        duration_ns: started.elapsed().as_nanos() as u64,
    });
}

/// The last `count` ops, oldest first: (label, device, start ns, enqueue ns).
pub(crate) fn last_ops(count: usize) -> Vec<(String, u16, u64, u64)> {
    EVENTS
        .latest(count)
        .into_iter()
        .filter_map(|event| {
            let op = registry::op(OpId(event.subject))?;
            Some((op.label(), event.device, event.start_ns, event.duration_ns))
        })
        .collect()
}

pub fn fallback_enabled() -> bool {
    FALLBACK.load(Ordering::Relaxed)
}

pub(crate) fn set_fallback(on: bool) {
    FALLBACK.store(on, Ordering::Relaxed);
}

/// Counts an op that ran on the CPU because the user allowed it.
pub fn count_fallback(op: OpId) {
    let name = registry::op(op).map_or_else(|| "?".to_owned(), |op| op.label());
    *FALLBACKS.lock().entry(name).or_default() += 1;
}

pub(crate) fn fallbacks() -> BTreeMap<String, u64> {
    FALLBACKS.lock().clone()
}
