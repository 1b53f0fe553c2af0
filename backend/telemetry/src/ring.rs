use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;

use crate::Event;

/// Keeps the latest events of all threads.
#[derive(Debug)]
pub struct Ring {
    queue: ArrayQueue<Event>,
    dropped: AtomicU64,
}

impl Ring {
    pub fn new(capacity: usize) -> Self {
        Self {
            queue: ArrayQueue::new(capacity),
            dropped: AtomicU64::new(0),
        }
    }

    #[inline]
    pub fn push(&self, event: Event) {
        if self.queue.force_push(event).is_some() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The latest `count` events, oldest first; they stay in the ring.
    pub fn latest(&self, count: usize) -> Vec<Event> {
        let mut events: Vec<Event> = std::iter::from_fn(|| self.queue.pop())
            .take(self.queue.capacity())
            .collect();
        for event in &events {
            // Events written meanwhile win over older ones.
            if self.queue.push(*event).is_err() {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        let skip = events.len().saturating_sub(count);
        events.drain(..skip);
        events
    }

    /// Events overwritten before anybody read them.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventKind;

    fn event(subject: u32) -> Event {
        Event {
            kind: EventKind::Op,
            subject,
            device: 0,
            start_ns: 0,
            duration_ns: 0,
        }
    }

    #[test]
    fn the_oldest_are_dropped_and_counted() {
        let ring = Ring::new(4);
        (0..6).for_each(|i| ring.push(event(i)));
        assert_eq!(ring.dropped(), 2);
        let subjects: Vec<u32> = ring.latest(3).iter().map(|e| e.subject).collect();
        assert_eq!(subjects, [3, 4, 5]);
        assert_eq!(ring.latest(9).len(), 4);
    }
}
