//! What this process does beside calls: its heartbeat, recovery, ends of runs, closing of browsers, erasing of pictures.

use std::{sync::Arc, time::Duration};

use formation_store::{
    StoreError,
    browser_sessions::{self, Session},
    instances, sweep,
};
use formation_vendors::{Account, Closed, RemoteSession};
use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::Inner;

/// How long a busy seat may hold up the closing of its browser: the operation in it ends by itself before.
const SEAT: Duration = Duration::from_secs(1);

/// Renews this process's lease until it stops. A lease that is not renewed ends by itself, and so do the calls under it.
pub(crate) async fn heartbeat(inner: Arc<Inner>) {
    let mut beats = interval(inner.timing.heartbeat);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while inner.stop.run_until_cancelled(beats.tick()).await.is_some() {
        match instances::beat(&inner.db, inner.instance, inner.timing.lease).await {
            Ok(true) => {}
            Ok(false) => tracing::error!("this process's lease is gone: its calls are being ended by others"),
            Err(error) => tracing::warn!(%error, "the lease could not be renewed"),
        }
    }
}

/// Looks for what has lapsed, each period and whenever it is woken.
pub(crate) async fn sweeper(inner: Arc<Inner>) {
    loop {
        let next = Instant::now() + inner.timing.sweep;
        if let Err(error) = round(&inner).await {
            tracing::warn!(%error, "a sweep could not finish");
        }
        tokio::select! {
            () = inner.stop.cancelled() => return,
            () = sleep_until(next) => {}
            () = inner.woken.notified() => {}
        }
    }
}

async fn round(inner: &Arc<Inner>) -> Result<(), StoreError> {
    let swept = sweep::round(&inner.db).await?;
    if swept.calls > 0 {
        tracing::warn!(calls = swept.calls, "ended calls whose holder was gone");
    }
    browser_sessions::close_outdated(&inner.db, &inner.rules).await?;
    for session in browser_sessions::to_close(&inner.db, inner.instance).await? {
        // Side by side: one browser that takes its time holds up no other.
        let inner = Arc::clone(inner);
        if inner.begin_closing(&session) {
            inner.tasks.clone().spawn(async move {
                close(&inner, &session).await;
                inner.end_closing(&session);
            });
        }
    }
    Ok(())
}

/// Closes one browser. What fails is tried again later, for ever, with growing pauses (B20).
async fn close(inner: &Inner, session: &Session) {
    let Some(mut turn) = inner.pages.turn(session.run, SEAT).await else { return };
    if turn.live.as_ref().is_some_and(|(kept, _)| *kept == session.id) {
        turn.live = None;
    }
    let closed = match (&session.remote, inner.catalog.browsers(&session.vendor)) {
        // It never answered, so there is nothing to close.
        (None, _) => true,
        (Some(_), None) => false,
        (Some(remote), Some(browsers)) => {
            let account = Account { key: None, config: &Value::Null };
            matches!(browsers.close(account, &RemoteSession::new(remote.clone())).await, Ok(Closed::Certain))
        }
    };
    drop(turn);
    let written = if closed {
        inner.pages.forget(session.run);
        browser_sessions::closed(&inner.db, session.id).await.map(drop)
    } else {
        tracing::warn!(session.id = %session.id, attempts = session.close_attempts + 1, "a browser could not be closed");
        browser_sessions::close_failed(&inner.db, session.id, session.close_attempts).await
    };
    if let Err(error) = written {
        tracing::warn!(%error, session.id = %session.id, "the closing of a browser could not be written");
    }
}
