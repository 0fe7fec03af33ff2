//! What operators look after: runs and their traces, conversations, and all agents at a glance (contract.md 2).
//!
//! Whose run or agent it is, the extractors decide; a list holds what its operator manages. A handler reads its body before it looks
//! at other ids of its path.

pub(crate) mod conversations;
pub(crate) mod overview;
pub(crate) mod runs;
pub(crate) mod trace;

use formation_core::{AgentId, refusal::Code};
use formation_runtime::people::Operator;

use crate::{problem::Problem, routes::Doors};

/// The agent that a list's `agent=` names: by its slug, or by its id, which it keeps when it is deleted.
pub(crate) async fn agent_named(doors: &Doors, person: &Operator, word: Option<&str>) -> Result<Option<AgentId>, Problem> {
    let Some(word) = word else { return Ok(None) };
    if let Ok(id) = AgentId::parse(word) {
        return Ok(Some(id));
    }
    let agent = doors.runtime.managed_agent(person, word).await?;
    Ok(Some(agent.ok_or_else(|| Problem::new(Code::NotFound))?.id))
}
