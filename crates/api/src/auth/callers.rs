//! Agents and runs, at `/v1` and `/mcp`.

use axum::extract::FromRequestParts;
use formation_core::{AgentId, RunId, TokenId, refusal::Code};
use formation_runtime::{Caller, RunRef, people::Principal};
use http::request::Parts;

use super::{
    bearer::{self, Taken},
    unauthenticated,
};
use crate::{problem::Problem, routes::Doors};

/// The holder of an agent token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AgentCaller {
    pub(crate) agent: AgentId,
    pub(crate) token: TokenId,
}

/// The holder of a run token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunCaller {
    pub(crate) run: RunId,
    pub(crate) agent: AgentId,
}

impl RunCaller {
    /// Its run, over or not.
    pub(crate) const fn run_ref(self) -> RunRef {
        RunRef { run: self.run, agent: self.agent, is_successor: false }
    }
}

/// The holder of either.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnyCaller(pub(crate) Caller);

impl FromRequestParts<Doors> for AnyCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, doors: &Doors) -> Result<Self, Problem> {
        let Taken::Token(token) = bearer::take(&mut parts.headers) else { return Err(unauthenticated()) };
        match doors.runtime.authenticate(&token).await?.ok_or_else(unauthenticated)? {
            Principal::Caller(caller) => Ok(Self(caller)),
            Principal::Operator(_) => {
                Err(Problem::new(Code::Forbidden).detail("This route takes the token of an agent or a run, not an operator's."))
            }
        }
    }
}

impl FromRequestParts<Doors> for AgentCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, doors: &Doors) -> Result<Self, Problem> {
        match AnyCaller::from_request_parts(parts, doors).await?.0 {
            Caller::Agent { agent, token } => Ok(Self { agent, token }),
            Caller::Run { .. } => Err(Problem::new(Code::Forbidden).detail("This route takes an agent's token, not a run's.")),
        }
    }
}

impl FromRequestParts<Doors> for RunCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, doors: &Doors) -> Result<Self, Problem> {
        match AnyCaller::from_request_parts(parts, doors).await?.0 {
            Caller::Run { run, agent, .. } => Ok(Self { run, agent }),
            Caller::Agent { .. } => {
                Err(Problem::new(Code::Forbidden).detail("This route takes the token of a run: open one with `POST /v1/runs`."))
            }
        }
    }
}
