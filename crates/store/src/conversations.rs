//! Conversations: what belongs together over several runs of an agent, under the caller's own word or none.

use formation_core::{AgentId, ConversationId, Timestamp};

use crate::{
    Page,
    db::{Db, Row, Tx},
    error::StoreError,
};

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

/// A conversation with its runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation {
    /// Its id.
    pub id: ConversationId,
    /// The caller's word for it; none when it is one run's own.
    pub name: Option<String>,
    /// When it began.
    pub created_at: Timestamp,
    /// How many runs belong to it.
    pub runs: i64,
    /// When the newest of them was opened.
    pub last_run_at: Option<Timestamp>,
}

/// The agent's conversations, newest first, those before `after` if given; 100 a page.
pub async fn list(db: &Db, agent: AgentId, after: Option<ConversationId>) -> Result<Page<Conversation>, StoreError> {
    let rows = db.rows(sql::LIST, &[agent.into(), after.into()]).await?;
    let items = rows.iter().take(100).map(conversation).collect::<Result<Vec<_>, _>>()?;
    Ok(Page { items, has_more: rows.len() > 100 })
}

fn conversation(row: &Row) -> Result<Conversation, StoreError> {
    Ok(Conversation { id: row.at(0)?, name: row.at(1)?, created_at: row.at(2)?, runs: row.at(3)?, last_run_at: row.at(4)? })
}

pub(crate) mod sql {
    crate::db::statements! {
        LIST = "SELECT v.id, v.name, v.created_at, (SELECT count(*) FROM runs r WHERE r.conversation_id = v.id), \
            (SELECT max(r.created_at) FROM runs r WHERE r.conversation_id = v.id) FROM conversations v \
            WHERE v.agent_id = $1 AND (CAST($2 AS TEXT) IS NULL OR v.id < $2) ORDER BY v.id DESC LIMIT 101";
        MAKE = "INSERT INTO conversations (id, agent_id, name, created_at) VALUES ($1, $2, $3, $4) \
            ON CONFLICT (agent_id, name) WHERE name IS NOT NULL DO NOTHING";
        NAMED = "SELECT id FROM conversations WHERE agent_id = $1 AND name = $2";
    }
}
