//! Evidence: which calls of a run were admitted, on whose account (L9). One row an admission, written in its transaction.

use formation_core::{AgentId, Binding, CallId, Capability, ConversationId, RunId, Timestamp, VendorId};

use crate::{
    db::{Db, Tx},
    error::StoreError,
};

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

pub(crate) struct NewEvidence<'a> {
    pub(crate) call: CallId,
    pub(crate) run: RunId,
    pub(crate) conversation: ConversationId,
    pub(crate) binding: &'a Binding,
}

pub(crate) async fn insert(tx: &mut Tx, new: &NewEvidence<'_>) -> Result<(), StoreError> {
    let now = tx.now().await?;
    let account = new.binding.account.to_string();
    let vals = [
        new.call.into(),
        new.run.into(),
        new.binding.agent.into(),
        new.conversation.into(),
        new.binding.capability.into(),
        (&new.binding.vendor).into(),
        new.binding.owner.owner_word().into(),
        (&account).into(),
        now.into(),
    ];
    tx.exec(sql::INSERT, &vals).await.map(|_| ())
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
        INSERT = "INSERT INTO evidence \
            (call_id, run_id, agent_id, conversation_id, capability, vendor, credential_owner, account, admitted_at) \
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        OF_RUN = "SELECT call_id, capability, vendor, credential_owner, account, admitted_at FROM evidence \
            WHERE run_id = $1 AND agent_id = $2 ORDER BY admitted_at, call_id LIMIT 1000";
    }
}
