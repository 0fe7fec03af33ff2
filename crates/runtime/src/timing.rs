//! How long this process waits for what. The binary uses the defaults; tests shrink them.

use std::time::Duration;

use formation_core::limits;

/// Waits and periods.
#[derive(Debug, Clone)]
pub struct Timing {
    /// How long this process's lease lasts without a heartbeat.
    pub lease: Duration,
    /// How often it renews it.
    pub heartbeat: Duration,
    /// How often lapsed calls, runs, browsers and pictures are looked for.
    pub sweep: Duration,
    /// How often a grant is compared with what is stored (W20).
    pub poll: Duration,
    /// How long a call waits for its turn at the run's browser.
    pub turn: Duration,
    /// One browser operation, from its turn.
    pub operation: Duration,
    /// The browser's own waits.
    pub browser: formation_browser::Timing,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: formation_store::instances::LEASE,
            heartbeat: formation_store::instances::HEARTBEAT,
            sweep: Duration::from_secs(5),
            poll: Duration::from_secs(1),
            turn: limits::TURN,
            operation: limits::OPERATION,
            browser: formation_browser::Timing::default(),
        }
    }
}
