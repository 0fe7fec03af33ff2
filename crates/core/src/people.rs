//! Who acts: operators and their roles, and whoever else leaves a line in the audit trail (contract.md 1).

use crate::{ids::OperatorId, words};

words! {
    /// What an operator may do.
    pub enum Role {
        /// Everything.
        Owner = "owner",
        /// The agents it was given access to, and no settings of the install (O11).
        Member = "member",
    }
}

words! {
    /// With what somebody acted.
    pub enum ActorKind {
        /// An operator who signed in.
        Operator = "operator",
        /// An operator's token.
        OperatorToken = "operator_token",
        /// An agent's token, where it reached for more than is its own.
        Agent = "agent",
        /// A run's token, likewise.
        Run = "run",
        /// The command line, on the data itself.
        Host = "host",
        /// Nobody yet: signing in, setting up.
        Anonymous = "anonymous",
    }
}

/// Who made a change, for the audit trail and the `changed_by` of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// With what.
    pub kind: ActorKind,
    /// The id of the operator or agent, where there is one.
    pub id: Option<String>,
    /// Its name, for people; kept, so that a removed operator's deeds keep theirs.
    pub name: String,
    /// The request it came with, as it stands in the log; the command line has none.
    pub request: Option<String>,
}

impl Actor {
    /// The command line on this machine.
    pub fn host() -> Self {
        Self { kind: ActorKind::Host, id: None, name: "host".to_owned(), request: None }
    }
}

/// What an operator may see in lists over all agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Everything: an owner, the host's command line.
    Everything,
    /// The agents this member was given, whichever those are when the database is asked.
    Given(OperatorId),
}

impl Reach {
    /// Whose access bounds it; `None` is no bound. What a statement's `$n IS NULL OR agent_id IN (…)` takes.
    pub const fn bound(self) -> Option<OperatorId> {
        match self {
            Self::Everything => None,
            Self::Given(operator) => Some(operator),
        }
    }
}

/// A name people chose for an operator, an agent or a token: 1 to 128 bytes, no control characters, no white space at either end.
pub fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES).contains(&text.len()) && !text.chars().any(char::is_control) && text.trim() == text
}

/// The longest name.
pub const NAME_BYTES: usize = 128;
/// Characters of a password.
pub const PASSWORD_CHARACTERS: std::ops::RangeInclusive<usize> = 12..=200;
