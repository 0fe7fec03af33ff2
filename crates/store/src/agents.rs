//! Agents: who calls. A deleted one is never found again, and its rows stay: runs and evidence name it.

use formation_core::{AgentId, Scope, Timestamp, limits, people::Reach};
use serde::{Deserialize, Serialize};

use crate::{
    Page, accounts,
    db::{Db, Hold, News, Row, Tx},
    error::StoreError,
    runs,
};

/// An agent's word in addresses: `^[a-z0-9][a-z0-9-]{0,62}$`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Slug(String);

impl Slug {
    /// Reads one, or says `None`.
    pub fn parse(text: &str) -> Option<Self> {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let good = (1..=63).contains(&text.len())
            && text.bytes().all(|byte| inner(byte) || byte == b'-')
            && text.bytes().next().is_some_and(inner);
        good.then(|| Self(text.to_owned()))
    }

    /// The word.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Slug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Bounds of the implicit runs of an agent (contract.md 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunDefaults {
    /// At most, and by default, six hours.
    pub deadline_seconds: u64,
    /// 1–1,000,000; by default 5,000.
    pub max_tool_calls: i64,
    /// Whether runs load and save the agent's browser profile; without effect before there are profiles.
    pub browser_profile: bool,
}

impl Default for RunDefaults {
    fn default() -> Self {
        Self {
            deadline_seconds: limits::RUN_DEADLINE.as_secs(),
            max_tool_calls: limits::MAX_TOOL_CALLS_IMPLICIT,
            browser_profile: true,
        }
    }
}

/// An agent that is not deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Its id.
    pub id: AgentId,
    /// Its word.
    pub slug: String,
    /// Its name, for people.
    pub name: String,
    /// Bounds of its implicit runs.
    pub run_defaults: RunDefaults,
    /// When it was made.
    pub created_at: Timestamp,
}

/// What became of a creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    /// It is there.
    Made(Agent),
    /// Another agent has this slug.
    SlugTaken,
}

/// Makes an agent. `by` names the actor, for the record.
pub async fn create(tx: &mut Tx, slug: &Slug, name: &str, by: &str) -> Result<Created, StoreError> {
    let now = tx.now().await?;
    let id = AgentId::mint(now, tx.entropy());
    let vals = [id.into(), slug.as_str().into(), name.into(), now.into(), by.into()];
    if tx.exec(sql::CREATE, &vals).await? == 0 {
        return Ok(Created::SlugTaken);
    }
    Ok(Created::Made(Agent {
        id,
        slug: slug.as_str().to_owned(),
        name: name.to_owned(),
        run_defaults: RunDefaults::default(),
        created_at: now,
    }))
}

/// The agent of this slug.
pub async fn by_slug(db: &Db, slug: &str) -> Result<Option<Agent>, StoreError> {
    db.row(sql::BY_SLUG, &[slug.into()]).await?.map(|row| agent(&row)).transpose()
}

/// The agent of this slug, if it is within reach: one question, whether it isn't there or isn't theirs (S-08).
pub async fn within_reach(db: &Db, reach: Reach, slug: &Slug) -> Result<Option<Agent>, StoreError> {
    db.row(sql::WITHIN_REACH, &[slug.as_str().into(), reach.bound().into()]).await?.map(|row| agent(&row)).transpose()
}

/// The agent of this id.
pub async fn by_id(db: &Db, id: AgentId) -> Result<Option<Agent>, StoreError> {
    db.row(sql::BY_ID, &[id.into()]).await?.map(|row| agent(&row)).transpose()
}

/// Up to `limit` agents by slug, those after `after` if given.
pub async fn list(db: &Db, after: Option<&str>, limit: u32) -> Result<Vec<Agent>, StoreError> {
    db.rows(sql::LIST, &[after.unwrap_or("").into(), i64::from(limit.min(100)).into()]).await?.iter().map(agent).collect()
}

/// Agents within reach, newest first, those before `after` if given; 100 a page.
pub async fn page(db: &Db, reach: Reach, after: Option<AgentId>) -> Result<Page<Agent>, StoreError> {
    let rows = db.rows(sql::PAGE, &[reach.bound().into(), after.into()]).await?;
    let items = rows.iter().take(100).map(agent).collect::<Result<Vec<_>, _>>()?;
    Ok(Page { items, has_more: rows.len() > 100 })
}

/// Sets name and, where some are given, bounds of an agent. Without bounds of its own the install's count. `None`: there is none.
pub async fn update(
    tx: &mut Tx,
    id: AgentId,
    name: &str,
    run_defaults: Option<&RunDefaults>,
) -> Result<Option<Agent>, StoreError> {
    let defaults = run_defaults.map(serde_json::to_string).transpose();
    let defaults = defaults.map_err(|_| StoreError::internal("run defaults can't be written"))?;
    tx.row(sql::UPDATE, &[id.into(), name.into(), defaults.as_deref().into()]).await?.map(|row| agent(&row)).transpose()
}

/// Marks an agent deleted: it is not found any more, its tokens are dead, its open runs are over, nobody manages it,
/// its vendor accounts are gone with their keys. `false`: there was none. Its other rows stay: runs and evidence name it.
pub async fn delete(tx: &mut Tx, id: AgentId) -> Result<bool, StoreError> {
    tx.lock_scope(Scope::Install, Hold::Shared).await?;
    tx.lock_scope(Scope::Agent(id), Hold::Exclusive).await?;
    let now = tx.now().await?;
    if tx.exec(sql::DELETE, &[id.into(), now.into()]).await? == 0 {
        return Ok(false);
    }
    for row in tx.rows(sql::OPEN_RUNS, &[id.into()]).await? {
        let run = row.at(0)?;
        runs::end(tx, run, runs::EndReason::Cancelled).await?;
        tx.tell(News::Run(run));
    }
    tx.exec(sql::FORGET_ACCESS, &[id.into()]).await?;
    accounts::remove_all(tx, Scope::Agent(id)).await?;
    tx.tell(News::People);
    tx.tell(News::Settings(Scope::Agent(id)));
    Ok(true)
}

fn agent(row: &Row) -> Result<Agent, StoreError> {
    Ok(Agent {
        id: row.at(0)?,
        slug: row.at(1)?,
        name: row.at(2)?,
        run_defaults: run_defaults(row.at::<Option<String>>(3)?.as_deref())?,
        created_at: row.at(4)?,
    })
}

pub(crate) fn run_defaults(stored: Option<&str>) -> Result<RunDefaults, StoreError> {
    stored.map_or(Ok(RunDefaults::default()), |text| {
        serde_json::from_str(text).map_err(|_| StoreError::internal("stored run defaults cannot be read"))
    })
}

pub(crate) mod sql {
    crate::db::statements! {
        CREATE = "INSERT INTO agents (id, slug, name, version, created_at, created_by) VALUES ($1, $2, $3, 1, $4, $5) \
            ON CONFLICT DO NOTHING";
        BY_SLUG = "SELECT id, slug, name, run_defaults, created_at FROM agents WHERE slug = $1 AND deleted_at IS NULL";
        WITHIN_REACH = "SELECT id, slug, name, run_defaults, created_at FROM agents WHERE slug = $1 AND deleted_at IS NULL \
            AND (CAST($2 AS TEXT) IS NULL OR id IN (SELECT agent_id FROM agent_access WHERE operator_id = $2))";
        BY_ID = "SELECT id, slug, name, run_defaults, created_at FROM agents WHERE id = $1 AND deleted_at IS NULL";
        LIST = "SELECT id, slug, name, run_defaults, created_at FROM agents WHERE deleted_at IS NULL AND slug > $1 \
            ORDER BY slug LIMIT $2";
        PAGE = "SELECT id, slug, name, run_defaults, created_at FROM agents WHERE deleted_at IS NULL \
            AND (CAST($1 AS TEXT) IS NULL OR id IN (SELECT agent_id FROM agent_access WHERE operator_id = $1)) \
            AND (CAST($2 AS TEXT) IS NULL OR id < $2) ORDER BY id DESC LIMIT 101";
        UPDATE = "UPDATE agents SET name = $2, run_defaults = coalesce($3, run_defaults), version = version + 1 WHERE id = $1 AND deleted_at IS NULL \
            RETURNING id, slug, name, run_defaults, created_at";
        OPEN_RUNS = "SELECT id FROM runs WHERE agent_id = $1 AND state = 'open' ORDER BY id";
        FORGET_ACCESS = "DELETE FROM agent_access WHERE agent_id = $1";
        DELETE = "UPDATE agents SET deleted_at = $2 WHERE id = $1 AND deleted_at IS NULL";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_are_short_and_plain() {
        for good in ["a", "0", "demo", "a-b-", &"a".repeat(63)] {
            assert!(Slug::parse(good).is_some(), "{good}");
        }
        for bad in ["", "-a", "A", "a_b", "a b", "é", "a\n", &"a".repeat(64)] {
            assert!(Slug::parse(bad).is_none(), "{bad:?}");
        }
    }
}
