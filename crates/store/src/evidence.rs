//! Evidence: which calls of a run were admitted, on whose account (L9). One row an admission, written by it.

use formation_core::{AgentId, CallId, Capability, RunId, Timestamp, VendorId};

use crate::{db::Db, error::StoreError};

/// One admitted call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// The call.
    pub call: CallId,
    /// What was used.
    pub capability: Capability,
    /// Who served it.
    pub vendor: VendorId,
    /// Whose credential: `install` or `agent`.
    pub credential_owner: String,
    /// Which account, as in offers.
    pub account: String,
    /// When.
    pub admitted_at: Timestamp,
}

/// The evidence of one run of this agent, in order of admission, at most 1,000.
pub async fn of_run(db: &Db, agent: AgentId, run: RunId) -> Result<Vec<Evidence>, StoreError> {
    let rows = db.rows(sql::OF_RUN, &[run.into(), agent.into()]).await?;
    rows.iter()
        .map(|row| {
            Ok(Evidence {
                call: row.at(0)?,
                capability: row.at(1)?,
                vendor: row.at(2)?,
                credential_owner: row.at(3)?,
                account: row.at(4)?,
                admitted_at: row.at(5)?,
            })
        })
        .collect()
}

pub(crate) mod sql {
    crate::db::statements! {
        OF_RUN = "SELECT call_id, capability, vendor, credential_owner, account, admitted_at FROM evidence \
            WHERE run_id = $1 AND agent_id = $2 ORDER BY admitted_at, call_id LIMIT 1000";
    }
}
