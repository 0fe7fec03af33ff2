//! Conversations: what belongs together over several runs of an agent, under the caller's own word or none.

use formation_core::{AgentId, ConversationId};

use crate::{db::Tx, error::StoreError};

/// The agent's conversation of this word (≤ 128 of `A-Za-z0-9._:-`, checked by the caller), made at first use; without a word a new one.
pub async fn named_or_new(tx: &mut Tx, agent: AgentId, word: Option<&str>) -> Result<ConversationId, StoreError> {
    let now = tx.now().await?;
    let id = ConversationId::mint(now, tx.entropy());
    let made = tx.exec(sql::MAKE, &[id.into(), agent.into(), word.into(), now.into()]).await? == 1;
    match word {
        Some(word) if !made => {
            let row = tx.row(sql::NAMED, &[agent.into(), word.into()]).await?;
            row.ok_or(StoreError::internal("a conversation that was there is gone"))?.at(0)
        }
        _ => Ok(id),
    }
}

pub(crate) mod sql {
    crate::db::statements! {
        MAKE = "INSERT INTO conversations (id, agent_id, name, created_at) VALUES ($1, $2, $3, $4) \
            ON CONFLICT (agent_id, name) WHERE name IS NOT NULL DO NOTHING";
        NAMED = "SELECT id FROM conversations WHERE agent_id = $1 AND name = $2";
    }
}
