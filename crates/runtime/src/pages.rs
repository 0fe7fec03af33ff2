//! The browsers of this process, one seat a run.
//!
//! Calls of one session wait their turn here, first come first served, before admission: models send reads in parallel. What
//! decides across processes is the session's row; this is only where a connection is kept between calls, since attaching anew
//! costs more than a whole read.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use formation_browser::Live;
use formation_core::{BrowserSessionId, RunId};
use tokio::sync::OwnedMutexGuard;

/// One run's place at its browser. Who holds the guard may drive it.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    /// The connection, kept between calls, and the session row it belongs to.
    pub(crate) live: Option<(BrowserSessionId, Live)>,
}

/// A turn at a run's browser.
pub(crate) type Turn = OwnedMutexGuard<Seat>;

/// All seats.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    seats: Mutex<HashMap<RunId, Arc<tokio::sync::Mutex<Seat>>>>,
}

impl Pages {
    /// Waits for `run`'s turn, at most `limit`. `None`: it didn't come.
    pub(crate) async fn turn(&self, run: RunId, limit: Duration) -> Option<Turn> {
        let seat = self.seats.lock().unwrap_or_else(PoisonError::into_inner).entry(run).or_default().clone();
        tokio::time::timeout(limit, seat.lock_owned()).await.ok()
    }

    /// Drops the seat of a run that is over. A call still waiting for it keeps it alive and is refused at admission.
    pub(crate) fn forget(&self, run: RunId) {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner).remove(&run);
    }
}
