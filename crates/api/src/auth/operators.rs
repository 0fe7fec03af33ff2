//! Operators, at `/api`: any of them, an owner, or whoever manages the agent or run of the path.
//!
//! The credential comes first: a path says nothing to nobody. What isn't theirs is answered like what isn't there, with one body.

use axum::extract::{FromRequestParts, RawPathParams};
use formation_core::{AgentId, RunId, people::Actor, refusal::Code};
use formation_runtime::people::{Agent, Operator as Person, Principal};
use http::request::Parts;

use super::{
    bearer::{self, Taken},
    cookie, unauthenticated,
    witness::Witness,
};
use crate::{door::RequestId, problem::Problem, routes::Doors};

/// Any operator, by token or by session.
#[derive(Debug, Clone)]
pub(crate) struct Operator {
    pub(crate) person: Person,
    pub(crate) actor: Actor,
    /// The cookie they came with; none with a token.
    pub(crate) session: Option<String>,
}

/// An operator who owns the install.
#[derive(Debug, Clone)]
pub(crate) struct InstallOwner {
    pub(crate) actor: Actor,
}

/// An operator who manages the agent that the path's `{slug}` names.
#[derive(Debug, Clone)]
pub(crate) struct AgentManager {
    pub(crate) actor: Actor,
    pub(crate) agent: Agent,
}

/// An owner, and the agent that the path's `{slug}` names.
#[derive(Debug, Clone)]
pub(crate) struct AgentOwner {
    pub(crate) actor: Actor,
    pub(crate) agent: Agent,
}

/// An operator who manages the agent of the run that the path's `{id}` names.
#[derive(Debug, Clone)]
pub(crate) struct RunManager {
    pub(crate) actor: Actor,
    pub(crate) run: RunId,
    pub(crate) agent: AgentId,
}

impl FromRequestParts<Doors> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, doors: &Doors) -> Result<Self, Problem> {
        let request = parts.extensions.get::<RequestId>().map(|id| id.0.clone());
        let witness = parts.extensions.get::<Witness>().cloned().unwrap_or_default();
        let (principal, session) = match bearer::take(&mut parts.headers) {
            Taken::Token(token) => (doors.runtime.authenticate(&token).await?, None),
            Taken::Nonsense => (None, None),
            Taken::Nothing => {
                let session = cookie::session(&parts.headers).ok_or_else(unauthenticated)?;
                (doors.runtime.authenticate_session(&session).await?.map(Principal::Operator), Some(session))
            }
        };
        let principal = principal.ok_or_else(unauthenticated)?;
        let actor = principal.actor(request);
        witness.saw(actor.clone());
        let Principal::Operator(person) = principal else {
            return Err(Problem::new(Code::Forbidden)
                .detail("This route is for operators; an agent's or a run's token opens `/v1` and `/mcp`."));
        };
        if let Some(session) = &session {
            cookie::check_change(session, &parts.method, &parts.headers)?;
        }
        Ok(Self { person, actor, session })
    }
}

impl FromRequestParts<Doors> for InstallOwner {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, doors: &Doors) -> Result<Self, Problem> {
        let Operator { person, actor, .. } = Operator::from_request_parts(parts, doors).await?;
        owner(&person)?;
        Ok(Self { actor })
    }
}

impl FromRequestParts<Doors> for AgentManager {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, doors: &Doors) -> Result<Self, Problem> {
        let Operator { person, actor, .. } = Operator::from_request_parts(parts, doors).await?;
        let agent = managed_agent(parts, doors, &person).await?;
        Ok(Self { actor, agent })
    }
}

impl FromRequestParts<Doors> for AgentOwner {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, doors: &Doors) -> Result<Self, Problem> {
        let operator = Operator::from_request_parts(parts, doors).await?;
        owner(&operator.person)?;
        let agent = managed_agent(parts, doors, &operator.person).await?;
        Ok(Self { actor: operator.actor, agent })
    }
}

impl FromRequestParts<Doors> for RunManager {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, doors: &Doors) -> Result<Self, Problem> {
        let Operator { person, actor, .. } = Operator::from_request_parts(parts, doors).await?;
        let id = path(parts, "id").await.and_then(|text| RunId::parse(&text).ok());
        let run = id.ok_or_else(|| Problem::new(Code::MalformedId))?;
        let agent = doors.runtime.managed_run(&person, run).await?.ok_or_else(|| Problem::new(Code::NotFound))?;
        witness(parts).concerns(agent);
        Ok(Self { actor, run, agent })
    }
}

fn owner(person: &Person) -> Result<(), Problem> {
    if person.is_owner() {
        return Ok(());
    }
    Err(Problem::new(Code::Forbidden).detail("Only an owner of the install may do this."))
}

async fn managed_agent(parts: &mut Parts, doors: &Doors, person: &Person) -> Result<Agent, Problem> {
    let missing = || Problem::new(Code::NotFound);
    let slug = path(parts, "slug").await.ok_or_else(missing)?;
    let agent = doors.runtime.managed_agent(person, &slug).await?.ok_or_else(missing)?;
    witness(parts).concerns(agent.id);
    Ok(agent)
}

/// A parameter of the path, if it can be read.
async fn path(parts: &mut Parts, name: &str) -> Option<String> {
    let params = RawPathParams::from_request_parts(parts, &()).await.ok()?;
    params.iter().find(|(found, _)| *found == name).map(|(_, value)| value.to_owned())
}

fn witness(parts: &Parts) -> Witness {
    parts.extensions.get::<Witness>().cloned().unwrap_or_default()
}
