//! Who calls, and which of their runs a call belongs to (contract.md 3).

use formation_core::{AgentId, McpSessionId, Observation, RunId, Timestamp, TokenId};

/// The holder of a good token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// An agent's harness or MCP client.
    Agent {
        /// Whose token it is.
        agent: AgentId,
        /// Which token.
        token: TokenId,
    },
    /// One run.
    Run {
        /// The run.
        run: RunId,
        /// Its agent.
        agent: AgentId,
        /// Which token.
        token: TokenId,
    },
}

impl Caller {
    /// The agent behind it.
    pub const fn agent(&self) -> AgentId {
        match self {
            Self::Agent { agent, .. } | Self::Run { agent, .. } => *agent,
        }
    }

    /// The token's row.
    pub const fn token(&self) -> TokenId {
        match self {
            Self::Agent { token, .. } | Self::Run { token, .. } => *token,
        }
    }
}

/// The key under which an agent token's implicit runs follow one another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// A session of a legacy MCP client.
    Session(McpSessionId),
    /// The client's own word, from the header `Formation-Run`.
    Named(String),
    /// The token itself.
    Current,
}

/// What the run is wanted for: a listing opens no successor before a call was told that the last run is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Listing tools.
    List,
    /// Calling one.
    Call,
}

/// A run that the caller may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRef {
    /// The run, over or not: a call of one that is over is refused on record.
    pub run: RunId,
    /// Its agent.
    pub agent: AgentId,
    /// Whether it was just opened in place of one that ended; the first observation says so.
    pub is_successor: bool,
}

impl RunRef {
    /// The first observation of a successor says that this is another run (contract.md 3).
    pub(crate) fn introduce(&self, observation: Observation) -> Observation {
        if self.is_successor { observation.in_new_run(self.run) } else { observation }
    }
}

/// What `POST /v1/runs` asks for; bounds are checked by the caller's door.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRun {
    /// The caller's word for the conversation, at most 128 of `A-Za-z0-9._:-`; a new one without it.
    pub conversation: Option<String>,
    /// At most six hours.
    pub deadline: std::time::Duration,
    /// 1 to 1,000,000.
    pub max_tool_calls: i64,
    /// false loads and saves no profile.
    pub browser_profile: bool,
}

/// A run that was opened explicitly.
#[derive(Debug)]
pub struct OpenedRun {
    /// Its id.
    pub run: RunId,
    /// Its token, shown this once.
    pub token: formation_core::Secret,
    /// When it ends at the latest.
    pub deadline: Timestamp,
}
