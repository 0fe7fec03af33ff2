//! Phase 5 of admission: what metered calls cost. One unit a call, counted for its run and in its connection's minute (L1, L2, L8).
//!
//! A minute is a window of 60 seconds of database time. Both counters are locked by being read, decided on in memory, and written
//! once a batch. Units are never given back (L5, L6).

use std::collections::{BTreeMap, BTreeSet};

use formation_core::{
    Capability, RunId, Scope, Timestamp,
    refusal::{Refusal, RefusalReason},
    settings::Effective,
};
use serde_json::json;

use super::{Ask, Terms, json_rows};
use crate::{
    db::{Tx, Val},
    error::StoreError,
};

/// Seconds of one window.
const WINDOW: i64 = 60;

/// A counter as the batch sees it.
#[derive(Default)]
struct Counter {
    used: i64,
    is_changed: bool,
}

/// The counters of one batch, locked.
pub(super) struct Meters {
    minute: i64,
    /// Until the window ends, in whole seconds, at least one.
    rest: u64,
    runs: BTreeMap<(RunId, Capability), Counter>,
    rates: BTreeMap<(Scope, Capability), Counter>,
}

/// The window that `at` lies in: minutes since 1970, as in `rate_windows`.
pub fn minute_of(at: Timestamp) -> i64 {
    at.micros().div_euclid(1_000_000).div_euclid(WINDOW)
}

impl Meters {
    /// Locks and reads the counters that these asks could raise: run counters by run, then rate windows by key.
    pub(super) async fn lock(tx: &mut Tx, terms: &Terms, asks: &[Ask]) -> Result<Self, StoreError> {
        let now = tx.now().await?;
        let minute = minute_of(now);
        let rest = (minute + 1) * WINDOW - now.micros().div_euclid(1_000_000);
        let mut meters =
            Self { minute, rest: u64::try_from(rest).unwrap_or(1).max(1), runs: BTreeMap::new(), rates: BTreeMap::new() };
        let metered = asks.iter().filter(|ask| ask.offered.capability.is_metered());
        let (mut runs, mut rates) = (BTreeSet::new(), BTreeSet::new());
        for ask in metered {
            let capability = ask.offered.capability;
            if let Some(Ok((effective, _))) = terms.get(&(ask.agent, capability)) {
                runs.insert((ask.run, capability));
                rates.insert((effective.meter_scope, capability));
            }
        }
        if runs.is_empty() {
            return Ok(meters);
        }
        let keys = runs.iter().map(|(run, capability)| json!({"r": run, "c": capability}));
        for row in tx.rows(sql::LOCK_RUNS, &[json_rows(keys)]).await? {
            meters.runs.insert((row.at(0)?, row.at(1)?), Counter { used: row.at(2)?, is_changed: false });
        }
        let keys = rates.iter().map(|(scope, capability)| json!({"s": scope, "c": capability}));
        for row in tx.rows(sql::LOCK_RATES, &[json_rows(keys), minute.into()]).await? {
            meters.rates.insert((row.at(0)?, row.at(1)?), Counter { used: row.at(2)?, is_changed: false });
        }
        Ok(meters)
    }

    /// Takes one unit, in memory, or says which limit is reached (L9).
    pub(super) fn take(&mut self, ask: &Ask, effective: &Effective) -> Result<(), Refusal> {
        let capability = ask.offered.capability;
        if !capability.is_metered() {
            return Ok(());
        }
        let (Some(run), Some(rate)) =
            (self.runs.get_mut(&(ask.run, capability)), self.rates.get_mut(&(effective.meter_scope, capability)))
        else {
            // Nothing that wasn't locked may be spent; the asks and the terms are the ones that were locked for.
            return Err(Refusal::new(RefusalReason::GrantRevoked, super::GRANT_CHANGED));
        };
        let limits = effective.limits;
        if run.used >= limits.requests_per_run {
            let explanation = format!(
                "This run has used its {} {capability} requests. Nothing was sent; go on with what you have, or in a new run.",
                limits.requests_per_run
            );
            return Err(Refusal::new(RefusalReason::RunLimit, explanation));
        }
        if rate.used >= limits.requests_per_minute {
            let explanation = format!(
                "This connection has used its {} {capability} requests of this minute. Nothing was sent; wait {} seconds.",
                limits.requests_per_minute, self.rest
            );
            let mut refusal = Refusal::new(RefusalReason::RateLimited, explanation);
            refusal.retry_after_seconds = Some(self.rest);
            return Err(refusal);
        }
        for counter in [run, rate] {
            counter.used += 1;
            counter.is_changed = true;
        }
        Ok(())
    }

    /// The window units are taken from.
    pub(super) fn minute(&self) -> i64 {
        self.minute
    }

    /// Writes what was taken.
    pub(super) async fn write(&self, tx: &mut Tx) -> Result<(), StoreError> {
        let runs = self.runs.iter().filter(|(_, counter)| counter.is_changed);
        let runs: Vec<_> = runs.map(|((run, capability), counter)| json!({"r": run, "c": capability, "u": counter.used})).collect();
        if runs.is_empty() {
            return Ok(());
        }
        tx.exec(sql::COUNT_RUNS, &[json_rows(runs)]).await?;
        let rates = self.rates.iter().filter(|(_, counter)| counter.is_changed);
        let rates = rates.map(|((scope, capability), counter)| json!({"s": scope, "c": capability, "u": counter.used}));
        let vals: [Val<'_>; 2] = [json_rows(rates), self.minute.into()];
        tx.exec(sql::COUNT_RATES, &vals).await.map(drop)
    }
}

/// Forgets windows that ended over an hour ago. Usage over time is read from the evidence.
pub(crate) async fn sweep(tx: &mut Tx) -> Result<u64, StoreError> {
    let now = tx.now().await?;
    tx.exec(sql::SWEEP, &[(minute_of(now) - WINDOW).into()]).await
}

pub(crate) mod sql {
    crate::db::statements! {
        // An upsert that changes nothing locks a row and makes it if it isn't there, on both engines.
        LOCK_RUNS = "INSERT INTO run_counters (run_id, capability, used) \
            SELECT value ->> 'r', value ->> 'c', 0 FROM json_each($1) WHERE true \
            ON CONFLICT (run_id, capability) DO UPDATE SET used = run_counters.used RETURNING run_id, capability, used"
            => "INSERT INTO run_counters (run_id, capability, used) \
            SELECT j.r, j.c, 0 FROM jsonb_to_recordset(CAST($1 AS jsonb)) AS j (r text, c text) ORDER BY j.r, j.c \
            ON CONFLICT (run_id, capability) DO UPDATE SET used = run_counters.used RETURNING run_id, capability, used";
        LOCK_RATES = "INSERT INTO rate_windows (meter_scope, capability, minute, used) \
            SELECT value ->> 's', value ->> 'c', $2, 0 FROM json_each($1) WHERE true \
            ON CONFLICT (meter_scope, capability, minute) DO UPDATE SET used = rate_windows.used \
            RETURNING meter_scope, capability, used"
            => "INSERT INTO rate_windows (meter_scope, capability, minute, used) \
            SELECT j.s, j.c, $2, 0 FROM jsonb_to_recordset(CAST($1 AS jsonb)) AS j (s text, c text) ORDER BY j.s, j.c \
            ON CONFLICT (meter_scope, capability, minute) DO UPDATE SET used = rate_windows.used \
            RETURNING meter_scope, capability, used";
        COUNT_RUNS = "UPDATE run_counters SET used = j.value ->> 'u' FROM json_each($1) AS j \
            WHERE run_counters.run_id = j.value ->> 'r' AND run_counters.capability = j.value ->> 'c'"
            => "UPDATE run_counters SET used = j.u FROM jsonb_to_recordset(CAST($1 AS jsonb)) AS j (r text, c text, u bigint) \
            WHERE run_counters.run_id = j.r AND run_counters.capability = j.c";
        COUNT_RATES = "UPDATE rate_windows SET used = j.value ->> 'u' FROM json_each($1) AS j \
            WHERE meter_scope = j.value ->> 's' AND capability = j.value ->> 'c' AND minute = $2"
            => "UPDATE rate_windows SET used = j.u FROM jsonb_to_recordset(CAST($1 AS jsonb)) AS j (s text, c text, u bigint) \
            WHERE meter_scope = j.s AND capability = j.c AND minute = $2";
        SWEEP = "DELETE FROM rate_windows WHERE minute < $1";
    }
}
