//! The one execution path: offers, admission, the ledger, the run's browser, recovery and sweeps.
//!
//! `api` sees only this crate, so no route can skip admission or open a secret.

mod browse;
mod call;
mod caller;
mod execute;
mod measure;
mod offers;
pub mod oversight;
mod overview;
mod pages;
pub mod people;
mod reading;
mod runs;
mod search;
pub mod settings;
mod sweeper;
mod timing;
mod waiting;
mod watch;

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use formation_core::{BrowserSessionId, Clock, Entropy, Faults, InstanceId};
use formation_store::{
    Db, StoreError, browser_sessions::Session, combine::Combiner, instances, recovery, seal::MasterKeys, settings::Rules,
};
use formation_vendors::Catalog;
use tokio::sync::Notify;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use call::{Answer, ArtifactRead, CallRequest, Door, ExecuteError, Image, StoredCall};
pub use caller::{Caller, OpenRun, OpenedRun, Purpose, RunRef, Which};
pub use formation_store::Page;
pub use offers::{Change, Offer, OfferWatch};
pub use timing::Timing;

use crate::{pages::Pages, waiting::Waiting, watch::Watch};

/// The database did not do what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    /// It does not answer; nothing was changed.
    #[error("the database does not answer")]
    Unavailable,
    /// It says that the caller's token was taken back since it was presented; nothing was changed.
    #[error("the token is no longer good")]
    TokenRevoked,
    /// It refused what should have been right; logged where it happened.
    #[error("an internal error")]
    Internal,
}

impl From<StoreError> for RuntimeError {
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "the database failed");
        if error.is_unavailable() { Self::Unavailable } else { Self::Internal }
    }
}

/// What a runtime is made of.
#[derive(Debug)]
pub struct Parts {
    /// The database, migrated, its key fitted.
    pub db: Db,
    /// Opens and seals pictures.
    pub keys: Arc<MasterKeys>,
    /// The vendors of this process.
    pub catalog: Arc<Catalog>,
    /// For ids; the database's clock decides everything else.
    pub clock: Clock,
    /// For ids and nonces.
    pub entropy: Entropy,
    /// Waits and periods.
    pub timing: Timing,
    /// Places where the binary under test stops.
    pub faults: Faults,
}

/// Everything between the doors and the parts. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Runtime(Arc<Inner>);

pub(crate) struct Inner {
    db: Db,
    keys: Arc<MasterKeys>,
    catalog: Arc<Catalog>,
    clock: Clock,
    entropy: Entropy,
    timing: Timing,
    faults: Faults,
    instance: InstanceId,
    rules: Rules,
    combiner: Combiner,
    pages: Pages,
    waiting: Waiting,
    watch: Watch,
    passwords: people::passwords::Passwords,
    closing: Mutex<HashSet<BrowserSessionId>>,
    woken: Notify,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("instance", &self.instance).finish_non_exhaustive()
    }
}

impl Runtime {
    /// Enters this process in the database, ends the calls that earlier ones left, and starts heartbeat and sweeps. Nobody may
    /// call before it returns.
    pub async fn start(parts: Parts) -> Result<Self, StoreError> {
        let Parts { db, keys, catalog, clock, entropy, timing, faults } = parts;
        let rules = {
            let (order, environment) = (Arc::clone(&catalog), Arc::clone(&catalog));
            Rules::new(move |capability| order.order(capability), move || environment.environment_accounts())
        };
        let instance = instances::start(&db, timing.lease).await?;
        let recovered = recovery::run(&db).await?;
        if recovered > 0 {
            tracing::warn!(calls = recovered, "ended calls that an earlier process left");
        }
        let passwords = people::passwords::Passwords::new(entropy.clone());
        let combiner = Combiner::start(db.clone(), rules.clone());
        let inner = Arc::new(Inner {
            db,
            keys,
            catalog,
            clock,
            entropy,
            timing,
            faults,
            instance,
            rules,
            combiner,
            pages: Pages::default(),
            waiting: Waiting::default(),
            watch: Watch::default(),
            passwords,
            closing: Mutex::default(),
            woken: Notify::new(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        inner.tasks.spawn(sweeper::heartbeat(Arc::clone(&inner)));
        inner.tasks.spawn(sweeper::sweeper(Arc::clone(&inner)));
        inner.tasks.spawn(watch::keep(Arc::clone(&inner)));
        let hearing = Arc::clone(&inner);
        inner.tasks.spawn(async move {
            let _ = hearing.stop.run_until_cancelled(hearing.db.hear_replicas()).await;
        });
        Ok(Self(inner))
    }

    /// Lets running calls end, at most `limit`, then leaves: what has not ended is another process's or the next start's to end.
    pub async fn stop(&self, limit: Duration) {
        let inner = &self.0;
        let until = tokio::time::Instant::now() + limit;
        while inner.waiting.count() > 0 && tokio::time::Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        inner.stop.cancel();
        inner.tasks.close();
        drop(tokio::time::timeout_at(until, inner.tasks.wait()).await);
        if let Err(error) = instances::stop(&inner.db, inner.instance).await {
            tracing::warn!(%error, "this process could not sign off");
        }
    }

    /// Whether the database answers and is migrated.
    pub async fn is_ready(&self) -> bool {
        match self.0.db.migration_status().await {
            Ok(status) => status.is_current(),
            Err(_) => false,
        }
    }
}

impl Inner {
    fn wake_sweeper(&self) {
        self.woken.notify_one();
    }

    /// `false`: it is being closed already.
    fn begin_closing(&self, session: &Session) -> bool {
        self.closing.lock().unwrap_or_else(PoisonError::into_inner).insert(session.id)
    }

    fn end_closing(&self, session: &Session) {
        self.closing.lock().unwrap_or_else(PoisonError::into_inner).remove(&session.id);
    }
}
