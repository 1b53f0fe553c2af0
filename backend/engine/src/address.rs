//! Addresses shown by `data_ptr()`: one disjoint range a storage for its life, below 2^53 so that they survive a
//! double, and never readable: they lie above every user-space mapping of x86-64 and aarch64 processes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

pub(crate) const MAX_DEVICES: usize = 64;
/// Highest 2^52 bytes below 2^53, 2^46 a device.
const BASE: u64 = 1 << 52;
const SPAN: u64 = 1 << 46;
/// The first quarter of a device's span serves small storages, by bumping only.
const SMALL_SPAN: u64 = SPAN / 4;
const SMALL: u64 = 64 * 1024;
const ALIGN: u64 = 256;

struct DeviceRange {
    small: AtomicU64,
    large: Mutex<LargeRanges>,
}

struct LargeRanges {
    bump: u64,
    free: BTreeMap<u64, Vec<u64>>,
}

static RANGES: [DeviceRange; MAX_DEVICES] = [const {
    DeviceRange {
        small: AtomicU64::new(0),
        large: Mutex::new(LargeRanges {
            bump: SMALL_SPAN,
            free: BTreeMap::new(),
        }),
    }
}; MAX_DEVICES];

fn rounded(nbytes: u64) -> u64 {
    let size = nbytes.max(1).div_ceil(ALIGN) * ALIGN;
    if size <= SMALL {
        return size;
    }
    // Few distinct sizes, so that a freed range is found again: eight steps a power of two.
    let step = (size.next_power_of_two() / 16).max(ALIGN);
    size.div_ceil(step) * step
}

/// A fresh range of at least `nbytes` on `device`.
pub(crate) fn reserve(device: usize, nbytes: u64) -> u64 {
    let size = rounded(nbytes);
    let range = &RANGES[device];
    let start = BASE + device as u64 * SPAN;
    if size <= SMALL {
        // Wraps after 16 TiB of small allocations; a storage that old and that small may then share its number.
        return start + range.small.fetch_add(size, Ordering::Relaxed) % SMALL_SPAN;
    }
    let mut large = range.large.lock();
    if let Some(list) = large.free.get_mut(&size)
        && let Some(offset) = list.pop()
    {
        return start + offset;
    }
    let offset = large.bump;
    large.bump += size;
    start + offset
}

pub(crate) fn release(device: usize, address: u64, nbytes: u64) {
    let size = rounded(nbytes);
    if size > SMALL {
        let offset = address - (BASE + device as u64 * SPAN);
        RANGES[device]
            .large
            .lock()
            .free
            .entry(size)
            .or_default()
            .push(offset);
    }
}

/// The device whose storages have addresses like this one, if any.
pub fn device_of_address(address: u64) -> Option<usize> {
    let device = address.checked_sub(BASE)? / SPAN;
    ((device as usize) < MAX_DEVICES).then_some(device as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_disjoint_below_2_to_the_53_and_reused_when_large() {
        let a = reserve(3, 100);
        let b = reserve(3, 1);
        assert!(b >= a + 100);
        assert!(a < 1 << 53 && a > 1 << 48);
        assert_eq!(device_of_address(a), Some(3));
        let big = reserve(3, 1 << 30);
        assert!(reserve(3, 1 << 30) >= big + (1 << 30));
        release(3, big, 1 << 30);
        assert_eq!(reserve(3, 1 << 30), big);
        assert_eq!(device_of_address(0x7fff_0000_0000), None);
    }
}
