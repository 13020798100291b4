//! The capture ring: blocks from whoever hears the microphone to the pump, each with the time of its first sample.
//!
//! Bounded. When it is full the *newest* block is dropped and counted: the writer is a callback that cannot wait, and only the reader
//! may take the old ones away.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ringbuf::traits::{Consumer, Observer, Producer, Split};
use ringbuf::{HeapCons, HeapProd, HeapRb};

use crate::time::{BLOCK_SAMPLES, Stamp};

/// 10 ms from the microphone, mono at the house rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Captured {
    /// Capture time of the first sample.
    pub at: Stamp,
    /// The samples.
    pub samples: [f32; BLOCK_SAMPLES],
}

/// A ring of `blocks` blocks (at least one; 20 are 200 ms) and its two halves.
pub fn capture_ring(blocks: usize) -> (CaptureWriter, CaptureReader) {
    let (producer, consumer) = HeapRb::new(blocks.max(1)).split();
    let overruns = Arc::new(AtomicU64::new(0));
    (CaptureWriter { ring: producer, overruns: overruns.clone() }, CaptureReader { ring: consumer, overruns })
}

/// The half of whoever hears. Real-time manners.
pub struct CaptureWriter {
    ring: HeapProd<Captured>,
    overruns: Arc<AtomicU64>,
}

impl CaptureWriter {
    /// Hands over a block. Returns whether there was room; otherwise the block is lost and counted.
    pub fn push(&mut self, block: Captured) -> bool {
        let taken = self.ring.try_push(block).is_ok();
        if !taken {
            self.overruns.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }
}

/// The pump's half.
pub struct CaptureReader {
    ring: HeapCons<Captured>,
    overruns: Arc<AtomicU64>,
}

impl CaptureReader {
    /// The oldest block, if any.
    pub fn pop(&mut self) -> Option<Captured> {
        self.ring.try_pop()
    }

    /// Blocks that wait.
    pub fn waiting(&self) -> usize {
        self.ring.occupied_len()
    }

    /// Blocks lost because the ring was full, since it was made.
    pub fn overruns(&self) -> u64 {
        self.overruns.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_drops_the_newest_and_counts_it() {
        let (mut writer, mut reader) = capture_ring(2);
        let block = |ms| Captured { at: Stamp::from_millis(ms), samples: [ms as f32; BLOCK_SAMPLES] };
        assert!(writer.push(block(0)) && writer.push(block(10)));
        assert!(!writer.push(block(20)));
        assert_eq!((reader.waiting(), reader.overruns()), (2, 1));
        assert_eq!(reader.pop(), Some(block(0)));
        assert!(writer.push(block(30)));
        assert_eq!([reader.pop(), reader.pop(), reader.pop()], [Some(block(10)), Some(block(30)), None]);
        assert_eq!(reader.overruns(), 1);
    }
}
