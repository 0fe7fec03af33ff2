//! Process leases: one heartbeat row a process. A call has lapsed when its holder's row has, or its own bound has passed.

use std::time::Duration;

use formation_core::InstanceId;

use crate::{
    db::{Db, Engine, Tx},
    error::StoreError,
};

/// How long a heartbeat is good for.
pub const LEASE: Duration = Duration::from_secs(20);
/// How often it is renewed.
pub const HEARTBEAT: Duration = Duration::from_secs(5);

/// Enters this process, under a new id at each start. On SQLite it holds the folder's lock, so every other process is gone: their
/// leases end now, and recovery finds their calls before anybody listens.
pub async fn start(db: &Db, lease: Duration) -> Result<InstanceId, StoreError> {
    let alone = db.engine() == Engine::Sqlite;
    db.write(move |tx| {
        Box::pin(async move {
            let now = tx.now().await?;
            let id = InstanceId::mint(now, tx.entropy());
            if alone {
                tx.exec(sql::END_OTHERS, &[]).await?;
            }
            tx.exec(sql::START, &[id.into(), now.into(), now.after(lease).into()]).await?;
            Ok(id)
        })
    })
    .await
}

/// Renews this process's lease. `false`: its row is gone, and the process must not go on.
pub async fn beat(db: &Db, id: InstanceId, lease: Duration) -> Result<bool, StoreError> {
    db.write(move |tx| {
        Box::pin(async move {
            let now = tx.now().await?;
            Ok(tx.exec(sql::BEAT, &[id.into(), now.after(lease).into()]).await? == 1)
        })
    })
    .await
}

/// Ends this process's lease at an orderly stop.
pub async fn stop(db: &Db, id: InstanceId) -> Result<(), StoreError> {
    db.write(move |tx| Box::pin(async move { tx.exec(sql::STOP, &[id.into()]).await.map(|_| ()) })).await
}

/// Forgets processes whose lease ended an hour ago and that hold no open call and no browser.
pub(crate) async fn sweep(tx: &mut Tx) -> Result<u64, StoreError> {
    let now = tx.now().await?;
    let hour = 3_600_000_000;
    tx.exec(sql::SWEEP, &[(now.micros() - hour).into()]).await
}

pub(crate) mod sql {
    crate::db::statements! {
        END_OTHERS = "UPDATE instances SET lease_until = 0";
        START = "INSERT INTO instances (id, started_at, lease_until) VALUES ($1, $2, $3)";
        BEAT = "UPDATE instances SET lease_until = $2 WHERE id = $1";
        STOP = "UPDATE instances SET lease_until = 0 WHERE id = $1";
        SWEEP = "DELETE FROM instances WHERE lease_until < $1 \
            AND NOT EXISTS (SELECT 1 FROM tool_calls c WHERE c.holder = instances.id AND c.execution IN ('queued', 'admitted', 'dispatched')) \
            AND NOT EXISTS (SELECT 1 FROM browser_sessions s WHERE s.home = instances.id AND s.state <> 'closed')";
    }
}
