//! Offers: what a run was told it may call, on which terms (W17). A call names one or gets the run's newest of its tool.

use std::collections::BTreeMap;

use formation_core::{Binding, OfferId, RunId, Tool};

use crate::{
    db::{Db, Reads, Row, Tx},
    error::StoreError,
};

/// A recorded offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredOffer {
    /// Its id, which a call may name.
    pub id: OfferId,
    /// Of which tool.
    pub tool: Tool,
    /// On which terms.
    pub binding: Binding,
}

/// What is to be offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewOffer {
    /// Of which tool.
    pub tool: Tool,
    /// The version of its argument schema.
    pub schema_version: u32,
    /// On which terms.
    pub binding: Binding,
}

/// Records the offers that are new for this run and answers all of them, in the order asked: listing twice records once. Terms
/// that had been replaced and are in force again become the newest.
pub async fn record(tx: &mut Tx, run: RunId, offers: &[NewOffer]) -> Result<Vec<StoredOffer>, StoreError> {
    let now = tx.now().await?;
    let newest = newest_fingerprints(tx, run).await?;
    let mut recorded = Vec::with_capacity(offers.len());
    for offer in offers {
        let fingerprint = offer.binding.fingerprint(offer.tool, offer.schema_version);
        let id = match newest.get(&offer.tool) {
            Some((id, known)) if *known == fingerprint => *id,
            _ => {
                let id = OfferId::mint(now, tx.entropy());
                let binding = serde_json::to_string(&offer.binding).map_err(|_| StoreError::internal("a binding is no JSON"))?;
                let vals =
                    [id.into(), run.into(), offer.tool.into(), (&binding).into(), (&fingerprint).into(), now.into()];
                let row = tx.row(sql::RECORD, &vals).await?;
                row.ok_or(StoreError::internal("an offer was not recorded"))?.at(0)?
            }
        };
        recorded.push(StoredOffer { id, tool: offer.tool, binding: offer.binding.clone() });
    }
    Ok(recorded)
}

/// The run's newest offer of each tool.
pub async fn newest(db: &Db, run: RunId) -> Result<Vec<StoredOffer>, StoreError> {
    let mut by_tool: BTreeMap<Tool, StoredOffer> = BTreeMap::new();
    for row in db.rows(sql::ALL, &[run.into()]).await? {
        let offer = stored(&row)?;
        by_tool.entry(offer.tool).or_insert(offer);
    }
    Ok(by_tool.into_values().collect())
}

/// The run's newest offer of one tool.
pub async fn latest(db: &Db, run: RunId, tool: Tool) -> Result<Option<StoredOffer>, StoreError> {
    db.row(sql::LATEST, &[run.into(), tool.into()]).await?.map(|row| stored(&row)).transpose()
}

/// An offer of this run; another run's is not found.
pub async fn find(db: &Db, run: RunId, offer: OfferId) -> Result<Option<StoredOffer>, StoreError> {
    db.row(sql::FIND, &[run.into(), offer.into()]).await?.map(|row| stored(&row)).transpose()
}

async fn newest_fingerprints(tx: &mut Tx, run: RunId) -> Result<BTreeMap<Tool, (OfferId, [u8; 32])>, StoreError> {
    let mut newest = BTreeMap::new();
    for row in tx.fetch(sql::FINGERPRINTS, &[run.into()]).await? {
        let fingerprint = <[u8; 32]>::try_from(row.at::<Vec<u8>>(2)?)
            .map_err(|_| StoreError::internal("a fingerprint has another length"))?;
        newest.entry(row.at::<Tool>(1)?).or_insert((row.at::<OfferId>(0)?, fingerprint));
    }
    Ok(newest)
}

fn stored(row: &Row) -> Result<StoredOffer, StoreError> {
    let binding =
        serde_json::from_str(&row.at::<String>(2)?).map_err(|_| StoreError::internal("a stored binding cannot be read"))?;
    Ok(StoredOffer { id: row.at(0)?, tool: row.at(1)?, binding })
}

pub(crate) mod sql {
    crate::db::statements! {
        RECORD = "INSERT INTO offers (id, run_id, tool, binding, fingerprint, created_at) VALUES ($1, $2, $3, $4, $5, $6) \
            ON CONFLICT (run_id, tool, fingerprint) DO UPDATE SET created_at = excluded.created_at RETURNING id";
        // A run sees as many offers as settings change under it; the newest of each tool are among the newest hundred.
        ALL = "SELECT id, tool, binding FROM offers WHERE run_id = $1 ORDER BY created_at DESC, id DESC LIMIT 100";
        FINGERPRINTS = "SELECT id, tool, fingerprint FROM offers WHERE run_id = $1 ORDER BY created_at DESC, id DESC LIMIT 100";
        LATEST = "SELECT id, tool, binding FROM offers WHERE run_id = $1 AND tool = $2 ORDER BY created_at DESC, id DESC LIMIT 1";
        FIND = "SELECT id, tool, binding FROM offers WHERE run_id = $1 AND id = $2";
    }
}
