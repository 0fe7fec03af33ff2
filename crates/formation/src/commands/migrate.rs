//! `formation migrate`: migrations by hand, for those who gate them.

use serde_json::json;

use crate::{
    config::Place,
    opening,
    output::{Failure, Output},
    wiring::Wiring,
};

pub(crate) async fn migrate(check: bool, place: &Place, wiring: &Wiring, output: Output) -> Result<(), Failure> {
    let db = opening::unmigrated(place, wiring).await?;
    let before = db.migration_status().await.map_err(|error| opening::unreadable(&error))?;
    if !check {
        db.migrate().await.map_err(|error| Failure::failed(error.to_string()))?;
    }
    let after = db.migration_status().await.map_err(|error| opening::unreadable(&error))?;
    db.close().await;
    let answer = json!({"before": before.applied, "now": after.applied, "known": after.known, "current": after.is_current()});
    output.answer(&answer, || match (before.applied == after.applied, after.is_current()) {
        (false, _) => format!("migrated from {} to {}", before.applied, after.applied),
        (true, true) => format!("the database is at migration {}, this version's newest", after.applied),
        (true, false) => format!("the database is at migration {}, this version's newest is {}", after.applied, after.known),
    })?;
    if after.is_current() { Ok(()) } else { Err(Failure::Answered) }
}
