//! Who is told when a grant goes: every admitted call of this process, at once by news and at the latest a poll later (W20).
//!
//! One task compares for all of them: news wake it, and the period stands in for news that were lost. A call is entered before its
//! admission, so no change falls between the two. What a cut means is the call's own business: a request is dropped, input that is
//! under way is not.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use formation_core::{Binding, CallId, RunId};
use formation_store::{News, StoreError, runs};
use tokio::{sync::watch, time::sleep};

use crate::Inner;

/// Why a call should stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// What it was admitted on is not granted any more.
    Revoked,
    /// An operator ended its run.
    Cancelled,
}

/// The calls of this process that want to know.
#[derive(Debug, Default)]
pub(crate) struct Watch(Mutex<HashMap<CallId, Entry>>);

#[derive(Debug)]
struct Entry {
    run: RunId,
    binding: Binding,
    cut: watch::Sender<Option<Cut>>,
}

/// A call's place among them; dropping it leaves.
#[derive(Debug)]
pub(crate) struct Watched<'w> {
    watch: &'w Watch,
    call: CallId,
    cut: watch::Receiver<Option<Cut>>,
}

impl Watch {
    /// Enters a call with the terms it stands on.
    pub(crate) fn enter(&self, call: CallId, run: RunId, binding: &Binding) -> Watched<'_> {
        let (sender, cut) = watch::channel(None);
        let entry = Entry { run, binding: binding.clone(), cut: sender };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(call, entry);
        Watched { watch: self, call, cut }
    }

    fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn entries(&self) -> Vec<(RunId, Binding)> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.values().map(|entry| (entry.run, entry.binding.clone())).collect()
    }

    /// Cuts every call that `judge` finds a reason for.
    fn cut(&self, judge: impl Fn(RunId, &Binding) -> Option<Cut>) {
        for entry in self.0.lock().unwrap_or_else(PoisonError::into_inner).values() {
            if let Some(cut) = judge(entry.run, &entry.binding) {
                entry.cut.send_if_modified(|told| told.replace(cut) != Some(cut));
            }
        }
    }
}

impl Watched<'_> {
    /// Whose place it is.
    pub(crate) fn call(&self) -> CallId {
        self.call
    }

    /// Ends when the call should stop, at once if it should already.
    pub(crate) async fn cut(&self) -> Cut {
        let mut cut = self.cut.clone();
        // The sender stays in the map as long as this place does.
        match cut.wait_for(Option::is_some).await.ok().and_then(|told| *told) {
            Some(cut) => cut,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.watch.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.call);
    }
}

/// Compares on news and each poll, until this process stops.
pub(crate) async fn keep(inner: Arc<Inner>) {
    let mut listener = inner.db.listen();
    loop {
        tokio::select! {
            () = inner.stop.cancelled() => return,
            () = sleep(inner.timing.poll) => {}
            news = listener.next() => match news {
                // Browsers on other terms are the sweeper's to close.
                News::Settings(_) | News::Anything => inner.wake_sweeper(),
                News::Run(_) => {}
                News::People => continue,
            },
        }
        if !inner.watch.is_empty()
            && let Err(error) = compare(&inner).await
        {
            // Nobody is cut for what can't be read; the end of each call compares again.
            tracing::warn!(%error, "grants could not be compared");
        }
    }
}

async fn compare(inner: &Inner) -> Result<(), StoreError> {
    let entries = inner.watch.entries();
    let pairs: BTreeSet<_> = entries.iter().map(|(_, binding)| (binding.agent, binding.capability)).collect();
    let granted = inner.rules.resolve_many_now(&inner.db, &pairs).await?;
    let runs: BTreeSet<_> = entries.iter().map(|(run, _)| *run).collect();
    let cancelled = runs::cancelled(&inner.db, &runs).await?;
    inner.watch.cut(|run, binding| {
        // A call that came since is looked at next time.
        let now = granted.get(&(binding.agent, binding.capability))?;
        if now.as_ref().is_ok_and(|effective| effective.binding == *binding) {
            return cancelled.contains(&run).then_some(Cut::Cancelled);
        }
        Some(Cut::Revoked)
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use formation_core::{AccountRef, AgentId, Capability, Scope, VendorId};

    use super::*;

    fn binding(agent_version: i64) -> Binding {
        Binding {
            agent: AgentId::fixed(1),
            capability: Capability::Search,
            vendor: VendorId::known("brave"),
            owner: Scope::Install,
            account: AccountRef::Environment { fingerprint: "00".into() },
            install_version: Some(0),
            agent_version,
        }
    }

    #[tokio::test]
    async fn a_cut_reaches_its_calls_and_no_other() {
        let watch = Watch::default();
        let stale = watch.enter(CallId::fixed(1), RunId::fixed(1), &binding(1));
        let good = watch.enter(CallId::fixed(2), RunId::fixed(1), &binding(2));
        watch.cut(|_, binding| (binding.agent_version == 1).then_some(Cut::Revoked));
        assert_eq!(stale.cut().await, Cut::Revoked);
        let waited = tokio::time::timeout(std::time::Duration::from_millis(50), good.cut()).await;
        assert!(waited.is_err(), "the other one goes on");
        drop((stale, good));
        assert!(watch.is_empty());
    }
}
