//! Our ids: `UUIDv7`, lower case with hyphens wherever they are written down (contract.md, Conventions).

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{entropy::Entropy, time::Timestamp};

/// A text that is not one of our ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an id")]
pub struct MalformedId;

macro_rules! id {
    ($($(#[$meta:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// A new id; ids minted later sort later, to the millisecond.
            pub fn mint(at: Timestamp, entropy: &Entropy) -> Self {
                Self(uuid7(at, entropy))
            }

            /// Reads the canonical form, and no other.
            pub fn parse(text: &str) -> Result<Self, MalformedId> {
                canonical(text).map(Self)
            }

            /// A recognisable id for tests and examples: the number stands in its last digits.
            pub const fn fixed(number: u64) -> Self {
                Self(Uuid::from_u64_pair(0x0190_0000_0000_7000, 0x8000_0000_0000_0000 | number))
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }
    )+};
}

id! {
    /// An agent.
    AgentId,
    /// A run of an agent.
    RunId,
    /// One tool call in the ledger.
    CallId,
    /// What a run was offered: one tool on one binding (W17).
    OfferId,
    /// A token's row, not the token.
    TokenId,
    /// A browser session of a run.
    BrowserSessionId,
    /// A screenshot at rest.
    ArtifactId,
    /// A conversation of an agent.
    ConversationId,
    /// A session of a legacy MCP client.
    McpSessionId,
    /// A vendor account; new at each creation, so that a removed and remade account is another one.
    AccountId,
    /// A sealed secret.
    SecretId,
    /// A server process.
    InstanceId,
    /// An operator: a person who manages agents.
    OperatorId,
    /// A row of the audit trail.
    AuditId,
}

fn uuid7(at: Timestamp, entropy: &Entropy) -> Uuid {
    let millis = u64::try_from(at.micros() / 1000).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, &entropy.bytes()).into_uuid()
}

fn canonical(text: &str) -> Result<Uuid, MalformedId> {
    let id = Uuid::try_parse(text).map_err(|_| MalformedId)?;
    let mut buffer = Uuid::encode_buffer();
    if id.hyphenated().encode_lower(&mut buffer) == text { Ok(id) } else { Err(MalformedId) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_canonical_form_is_an_id() {
        let id = CallId::fixed(0xabc);
        assert_eq!(CallId::parse(&id.to_string()), Ok(id));
        for text in ["", "7", &id.to_string().to_uppercase(), &format!("{{{id}}}"), &id.to_string().replace('-', "")] {
            assert_eq!(CallId::parse(text), Err(MalformedId), "{text}");
        }
    }

    #[test]
    fn later_ids_sort_later() {
        let entropy = Entropy::counting(1);
        let one = RunId::mint(Timestamp::from_micros(1_000_000), &entropy);
        let two = RunId::mint(Timestamp::from_micros(1_002_000), &entropy);
        assert!(one < two && one.to_string() < two.to_string());
    }
}
