//! Who calls, and what that opens (contract.md 1).
//!
//! An extractor's type is the authorization (S-07): a handler with an [`AgentCaller`] can't be reached with a run token, nor one with
//! an [`AgentManager`] by an operator who doesn't manage the agent. Authority is read from the database on each request.
//!
//! | extractor | lets in | path | its `security` in `utoipa::path` |
//! |---|---|---|---|
//! | [`Operator`] | any operator | | `("operator_token" = ["operator"]), ("session" = ["operator"])` |
//! | [`InstallOwner`] | owners, else 403 | | `… = ["owner"]` |
//! | [`AgentManager`] | who manages the agent, else 404 | `{slug}` | `… = ["manager"]` |
//! | [`AgentOwner`] | owners, else 403 | `{slug}` | `… = ["owner"]` |
//! | [`RunManager`] | likewise; 400 for what is no id | `{id}` | `… = ["manager"]` |
//! | [`AgentCaller`], [`RunCaller`], [`AnyCaller`] | tokens of agents and runs | | `agent_token`, `run_token` |
//!
//! A route that changes something has an `operation_id` of the form `noun.verb`: the word its rows in the audit trail bear.

mod bearer;
mod callers;
pub(crate) mod cookie;
mod operators;
mod witness;

use formation_core::refusal::Code;

pub(crate) use self::{
    callers::{AgentCaller, AnyCaller, RunCaller},
    operators::{AgentManager, AgentOwner, InstallOwner, Operator, RunManager},
    witness::audited,
};
use crate::problem::Problem;

fn unauthenticated() -> Problem {
    Problem::new(Code::Unauthenticated).detail("Send `Authorization: Bearer` with a token of Formation's.")
}
