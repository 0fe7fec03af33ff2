//! Operators: the people who manage agents. A name is one person's whatever its capitals; the last enabled owner stays.
//!
//! What changes operators holds the install's scope exclusively, so that two owners can't remove each other at once. Disabling or
//! deleting somebody ends their sessions; their tokens are dead while they are disabled and gone when they are deleted. Authority is
//! read from here on each request and kept nowhere.

use formation_core::{AgentId, OperatorId, Scope, Timestamp, people::Role};

use crate::{
    Page,
    db::{Db, Hold, News, Row, Tx},
    error::StoreError,
};

/// A person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operator {
    /// Their id.
    pub id: OperatorId,
    /// Their name, as they wrote it.
    pub name: String,
    /// What they may do.
    pub role: Role,
    /// When they came.
    pub created_at: Timestamp,
    /// Since when they can do nothing.
    pub disabled_at: Option<Timestamp>,
}

/// What became of a creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    /// They are in.
    Made(Operator),
    /// Somebody has this name.
    NameTaken,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// They are like this now, or were before they were deleted.
    Done(Operator),
    /// Nobody has this id.
    Missing,
    /// Nobody would be left to own the install.
    LastOwner,
}

/// One name, whatever its capitals.
pub fn name_key(name: &str) -> String {
    name.trim().to_lowercase()
}

/// Makes an operator. `password_hash` is a PHC string.
pub async fn create(tx: &mut Tx, name: &str, role: Role, password_hash: &str) -> Result<Created, StoreError> {
    tx.lock_scope(Scope::Install, Hold::Exclusive).await?;
    let now = tx.now().await?;
    let id = OperatorId::mint(now, tx.entropy());
    let key = name_key(name);
    let vals = [id.into(), name.into(), (&key).into(), role.into(), password_hash.into(), now.into()];
    if tx.exec(sql::CREATE, &vals).await? == 0 {
        return Ok(Created::NameTaken);
    }
    tx.tell(News::People);
    Ok(Created::Made(Operator { id, name: name.to_owned(), role, created_at: now, disabled_at: None }))
}

/// The operator of this id, enabled or not.
pub async fn by_id(db: &Db, id: OperatorId) -> Result<Option<Operator>, StoreError> {
    db.row(sql::BY_ID, &[id.into()]).await?.map(|row| operator(&row)).transpose()
}

/// The operator of this name, enabled or not, and their password's hash.
pub async fn by_name(db: &Db, name: &str) -> Result<Option<(Operator, String)>, StoreError> {
    let key = name_key(name);
    db.row(sql::BY_NAME, &[(&key).into()]).await?.map(|row| Ok((operator(&row)?, row.at(5)?))).transpose()
}

/// Operators, newest first, those before `after` if given; 100 a page.
pub async fn list(db: &Db, after: Option<OperatorId>) -> Result<Page<Operator>, StoreError> {
    let mut items = db.rows(sql::LIST, &[after.into()]).await?.iter().map(operator).collect::<Result<Vec<_>, _>>()?;
    let has_more = items.len() > 100;
    items.truncate(100);
    Ok(Page { items, has_more })
}

/// Whether anybody owns the install: an owner who is disabled does too, since another one exists then.
pub async fn has_owner(db: &Db) -> Result<bool, StoreError> {
    Ok(db.row(sql::HAS_OWNER, &[]).await?.is_some())
}

/// The same within a transaction that makes the first one, under the install's lock: two set-ups make one owner.
pub async fn is_without_owner(tx: &mut Tx) -> Result<bool, StoreError> {
    tx.lock_scope(Scope::Install, Hold::Exclusive).await?;
    Ok(tx.row(sql::HAS_OWNER, &[]).await?.is_none())
}

/// Disables or enables somebody; what they are already stays as it is. Disabling ends their sessions; their tokens are dead until
/// they are enabled again.
pub async fn set_disabled(tx: &mut Tx, id: OperatorId, disabled: bool) -> Result<Changed, StoreError> {
    let Some(mut found) = locked(tx, id).await? else { return Ok(Changed::Missing) };
    if disabled && is_last_owner(tx, &found).await? {
        return Ok(Changed::LastOwner);
    }
    let now = tx.now().await?;
    found.disabled_at = disabled.then(|| found.disabled_at.unwrap_or(now));
    tx.exec(sql::SET_DISABLED, &[id.into(), found.disabled_at.into()]).await?;
    if disabled {
        tx.exec(sql::END_SESSIONS, &[id.into()]).await?;
    }
    tx.tell(News::People);
    Ok(Changed::Done(found))
}

/// Deletes somebody with their sessions, tokens and access. What they did stays in the audit trail under their name.
pub async fn delete(tx: &mut Tx, id: OperatorId) -> Result<Changed, StoreError> {
    let Some(found) = locked(tx, id).await? else { return Ok(Changed::Missing) };
    if is_last_owner(tx, &found).await? {
        return Ok(Changed::LastOwner);
    }
    tx.exec(sql::DELETE, &[id.into()]).await?;
    tx.tell(News::People);
    Ok(Changed::Done(found))
}

/// Who was given the agent, by name; at most 1,000.
pub async fn given(db: &Db, agent: AgentId) -> Result<Vec<Operator>, StoreError> {
    db.rows(sql::GIVEN, &[agent.into()]).await?.iter().map(operator).collect()
}

/// Whether this operator was given this agent.
pub async fn is_given(db: &Db, agent: AgentId, id: OperatorId) -> Result<bool, StoreError> {
    Ok(db.row(sql::IS_GIVEN, &[agent.into(), id.into()]).await?.is_some())
}

/// Gives the agent to exactly these operators. The first one that nobody is comes back, and then nothing was changed.
pub async fn give(tx: &mut Tx, agent: AgentId, to: &[OperatorId], by: &str) -> Result<Result<(), OperatorId>, StoreError> {
    tx.lock_scope(Scope::Install, Hold::Exclusive).await?;
    for id in to {
        if tx.row(sql::BY_ID, &[(*id).into()]).await?.is_none() {
            return Ok(Err(*id));
        }
    }
    let now = tx.now().await?;
    for row in tx.rows(sql::GIVEN_IDS, &[agent.into()]).await? {
        let id: OperatorId = row.at(0)?;
        if !to.contains(&id) {
            tx.exec(sql::TAKE, &[agent.into(), id.into()]).await?;
        }
    }
    for id in to {
        tx.exec(sql::GIVE, &[agent.into(), (*id).into(), now.into(), by.into()]).await?;
    }
    tx.tell(News::People);
    Ok(Ok(()))
}

async fn locked(tx: &mut Tx, id: OperatorId) -> Result<Option<Operator>, StoreError> {
    tx.lock_scope(Scope::Install, Hold::Exclusive).await?;
    tx.row(sql::BY_ID, &[id.into()]).await?.map(|row| operator(&row)).transpose()
}

async fn is_last_owner(tx: &mut Tx, operator: &Operator) -> Result<bool, StoreError> {
    if operator.role != Role::Owner || operator.disabled_at.is_some() {
        return Ok(false);
    }
    Ok(tx.row(sql::ANOTHER_OWNER, &[operator.id.into()]).await?.is_none())
}

fn operator(row: &Row) -> Result<Operator, StoreError> {
    Ok(Operator { id: row.at(0)?, name: row.at(1)?, role: row.at(2)?, created_at: row.at(3)?, disabled_at: row.at(4)? })
}

pub(crate) mod sql {
    macro_rules! columns {
        ($rest:literal) => {
            concat!("SELECT o.id, o.name, o.role, o.created_at, o.disabled_at FROM operators o ", $rest)
        };
    }

    crate::db::statements! {
        CREATE = "INSERT INTO operators (id, name, name_key, role, password_hash, created_at) VALUES ($1, $2, $3, $4, $5, $6) \
            ON CONFLICT DO NOTHING";
        BY_ID = columns!("WHERE o.id = $1");
        BY_NAME = "SELECT id, name, role, created_at, disabled_at, password_hash FROM operators WHERE name_key = $1";
        LIST = columns!("WHERE CAST($1 AS TEXT) IS NULL OR o.id < $1 ORDER BY o.id DESC LIMIT 101");
        HAS_OWNER = "SELECT id FROM operators WHERE role = 'owner' LIMIT 1";
        ANOTHER_OWNER = "SELECT id FROM operators WHERE role = 'owner' AND disabled_at IS NULL AND id <> $1 LIMIT 1";
        SET_DISABLED = "UPDATE operators SET disabled_at = $2 WHERE id = $1";
        END_SESSIONS = "DELETE FROM operator_sessions WHERE operator_id = $1";
        DELETE = "DELETE FROM operators WHERE id = $1";
        GIVEN = columns!("JOIN agent_access g ON g.operator_id = o.id WHERE g.agent_id = $1 ORDER BY o.name_key LIMIT 1000");
        GIVEN_IDS = "SELECT operator_id FROM agent_access WHERE agent_id = $1";
        IS_GIVEN = "SELECT operator_id FROM agent_access WHERE agent_id = $1 AND operator_id = $2";
        TAKE = "DELETE FROM agent_access WHERE agent_id = $1 AND operator_id = $2";
        GIVE = "INSERT INTO agent_access (agent_id, operator_id, granted_at, granted_by) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING";
    }
}
