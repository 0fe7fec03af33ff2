//! Who waits in this process for which call to settle.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use formation_core::CallId;
use tokio::sync::watch;

/// Calls that run here, each with a signal that ends when they have settled.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    running: Mutex<HashMap<CallId, watch::Receiver<()>>>,
}

/// Held while a call runs; dropping it wakes everybody who waits.
#[derive(Debug)]
pub(crate) struct RunningCall<'a> {
    waiting: &'a Waiting,
    call: CallId,
    _settled: watch::Sender<()>,
}

impl Waiting {
    /// Marks `call` as running in this process.
    pub(crate) fn start(&self, call: CallId) -> RunningCall<'_> {
        let (settled, signal) = watch::channel(());
        self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(call, signal);
        RunningCall { waiting: self, call, _settled: settled }
    }

    /// Waits until `call` has settled, if it runs in this process; at once otherwise.
    pub(crate) async fn settled(&self, call: CallId) {
        let signal = self.running.lock().unwrap_or_else(PoisonError::into_inner).get(&call).cloned();
        if let Some(mut signal) = signal {
            // An error is the sender's end, which is what is waited for.
            while signal.changed().await.is_ok() {}
        }
    }

    /// How many calls run here.
    pub(crate) fn count(&self) -> usize {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Drop for RunningCall<'_> {
    fn drop(&mut self) {
        self.waiting.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.call);
    }
}
