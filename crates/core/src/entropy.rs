//! Randomness, passed in: the binary brings the system's, a test brings a counted one.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use sha2::{Digest, Sha256};

type Fill = dyn Fn(&mut [u8]) + Send + Sync;

/// A source of unpredictable bytes.
#[derive(Clone)]
pub struct Entropy(Arc<Fill>);

impl Entropy {
    /// Wraps a source. In production it is the operating system's; nothing else is good enough for keys and tokens.
    pub fn new(fill: impl Fn(&mut [u8]) + Send + Sync + 'static) -> Self {
        Self(Arc::new(fill))
    }

    /// A repeatable source for tests: SHA-256 of a counter, starting from `seed`.
    pub fn counting(seed: u64) -> Self {
        let counter = AtomicU64::new(0);
        Self::new(move |buffer| {
            for chunk in buffer.chunks_mut(32) {
                let mut hash = Sha256::new();
                hash.update(seed.to_le_bytes());
                hash.update(counter.fetch_add(1, Ordering::Relaxed).to_le_bytes());
                chunk.copy_from_slice(&hash.finalize()[..chunk.len()]);
            }
        })
    }

    /// Fills `buffer`.
    pub fn fill(&self, buffer: &mut [u8]) {
        (self.0)(buffer);
    }

    /// An array of fresh bytes.
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy")
    }
}
