//! People: who is behind a credential, what they may reach, and what they did.
//!
//! Authority is read from the database on each request; nothing here remembers it.

mod managing;
pub(crate) mod passwords;
mod signing_in;
mod trail;

use formation_core::{
    AgentId, OperatorId, RunId, TokenId,
    people::{Actor, ActorKind, Reach, Role},
};
use formation_store::{
    agents::{self, Slug},
    operator_sessions, runs, tokens,
};

pub use formation_store::{
    agents::{Agent, RunDefaults},
    audit::{AuditOutcome, Entry as AuditEntry, Filter as AuditFilter},
    operator_sessions::LIFE as SESSION_LIFE,
    operators::Operator as OperatorRow,
    tokens::{Minted, TokenRow},
};

pub use self::{
    managing::{AgentChange, ChangeError, NewAgent},
    passwords::hash as hash_password,
    signing_in::{SignIn, SignInError, SignedIn, first_owner},
    trail::TurnedAway,
};
use crate::{Caller, Runtime, RuntimeError};

/// Who is behind a good credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Principal {
    /// An agent or a run.
    Caller(Caller),
    /// A person.
    Operator(Operator),
}

/// A person who signed in or sent a token of theirs, as they stand at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operator {
    /// Who.
    pub id: OperatorId,
    /// Their name.
    pub name: String,
    /// What they may do.
    pub role: Role,
    /// The token they sent; a session has none.
    pub token: Option<TokenId>,
}

impl Operator {
    /// Whether the install is theirs.
    pub fn is_owner(&self) -> bool {
        self.role == Role::Owner
    }

    /// What their lists hold.
    pub fn reach(&self) -> Reach {
        if self.is_owner() { Reach::Everything } else { Reach::Given(self.id) }
    }

    /// Them in the audit trail. `request` is the request's id.
    pub fn actor(&self, request: Option<String>) -> Actor {
        let kind = if self.token.is_some() { ActorKind::OperatorToken } else { ActorKind::Operator };
        Actor { kind, id: Some(self.id.to_string()), name: self.name.clone(), request }
    }
}

impl From<tokens::TokenOperator> for Operator {
    fn from(found: tokens::TokenOperator) -> Self {
        Self { id: found.operator, name: found.name, role: found.role, token: found.token }
    }
}

impl Principal {
    /// Them in the audit trail. `request` is the request's id.
    pub fn actor(&self, request: Option<String>) -> Actor {
        let (kind, id) = match self {
            Self::Operator(operator) => return operator.actor(request),
            Self::Caller(Caller::Agent { agent, .. }) => (ActorKind::Agent, agent.to_string()),
            Self::Caller(Caller::Run { run, .. }) => (ActorKind::Run, run.to_string()),
        };
        Actor { kind, id: Some(id), name: kind.to_string(), request }
    }
}

impl Runtime {
    /// Who sent this token; `None` for anything that is not a good one. A run's token stays good after its run: its calls get
    /// `run_over`.
    pub async fn authenticate(&self, token: &str) -> Result<Option<Principal>, RuntimeError> {
        let found = tokens::lookup(&self.0.db, token).await?;
        Ok(found.map(|found| match found {
            tokens::Presented::Operator(operator) => Principal::Operator(operator.into()),
            tokens::Presented::Caller(tokens::TokenCaller { token, agent, run: Some(run) }) => {
                Principal::Caller(Caller::Run { run, agent, token })
            }
            tokens::Presented::Caller(tokens::TokenCaller { token, agent, run: None }) => {
                Principal::Caller(Caller::Agent { agent, token })
            }
        }))
    }

    /// Who signed in with this cookie; `None` for a session that is over or never was.
    pub async fn authenticate_session(&self, session: &str) -> Result<Option<Operator>, RuntimeError> {
        Ok(operator_sessions::lookup(&self.0.db, session).await?.map(Operator::from))
    }

    /// The agent of this slug, if this operator manages it. What is no slug names none.
    pub async fn managed_agent(&self, operator: &Operator, slug: &str) -> Result<Option<Agent>, RuntimeError> {
        let Some(slug) = Slug::parse(slug) else { return Ok(None) };
        Ok(agents::within_reach(&self.0.db, operator.reach(), &slug).await?)
    }

    /// The agent of this run, if this operator manages it. A run of a deleted agent is an owner's to see.
    pub async fn managed_run(&self, operator: &Operator, run: RunId) -> Result<Option<AgentId>, RuntimeError> {
        Ok(runs::agent_within_reach(&self.0.db, operator.reach(), run).await?)
    }
}

/// The word a session's pages send along with a change.
pub fn csrf_of(session: &str) -> String {
    operator_sessions::csrf_of(session)
}

/// Whether it is this session's, compared in constant time.
pub fn is_csrf_of(session: &str, presented: &str) -> bool {
    operator_sessions::is_csrf_of(session, presented)
}
