//! What an authorization depends on (W17).
//!
//! An offer stores one binding, admission resolves another under the scope locks, and equality is the whole test: nothing that
//! could change who pays or what is allowed may be left out.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    ids::{AccountId, AgentId},
    tool::{Capability, Tool},
};

/// A vendor's word, as in routes and settings: `local`, `brave`, …
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VendorId(Cow<'static, str>);

impl VendorId {
    /// The vendor of a catalog entry.
    pub const fn known(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }

    /// A vendor named in storage or by a caller; whether it is in the catalog is the catalog's to say.
    pub fn named(name: impl Into<String>) -> Self {
        Self(Cow::Owned(name.into()))
    }

    /// Its word.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for VendorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Who a setting or an account belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// The whole installation.
    Install,
    /// One agent.
    Agent(AgentId),
}

impl Scope {
    /// Reads the stored form.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "install" {
            return Some(Self::Install);
        }
        text.strip_prefix("agent:").and_then(|id| AgentId::parse(id).ok()).map(Self::Agent)
    }

    /// The agent, where it is one's.
    pub const fn agent(self) -> Option<AgentId> {
        match self {
            Self::Install => None,
            Self::Agent(agent) => Some(agent),
        }
    }

    /// The word for observations: whose credential was used, never which.
    pub const fn owner_word(self) -> &'static str {
        match self {
            Self::Install => "install",
            Self::Agent(_) => "agent",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Install => f.write_str("install"),
            Self::Agent(id) => write!(f, "agent:{id}"),
        }
    }
}

impl Serialize for Scope {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Scope {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not a scope"))
    }
}

/// Which account pays.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccountRef {
    /// A stored account at one version.
    Stored {
        /// New at each creation.
        id: AccountId,
        /// Rises with each change.
        version: i64,
    },
    /// An account the process environment brings.
    Environment {
        /// A keyed hash of what it consists of, hexadecimal: other switches at a restart make other offers.
        fingerprint: String,
    },
}

impl fmt::Display for AccountRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stored { id, version } => write!(f, "{id}@{version}"),
            Self::Environment { fingerprint } => write!(f, "env:{fingerprint}"),
        }
    }
}

/// Everything an authorization depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Binding {
    /// The agent.
    pub agent: AgentId,
    /// What is granted.
    pub capability: Capability,
    /// Which vendor serves it.
    pub vendor: VendorId,
    /// Whose account pays.
    pub owner: Scope,
    /// Which account.
    pub account: AccountRef,
    /// Version of the install's settings row, 0 without one; absent when the agent's own row decides.
    pub install_version: Option<i64>,
    /// Version of the agent's settings row, 0 without one.
    pub agent_version: i64,
}

impl Binding {
    /// What makes two offers of one run the same one: binding, tool name and the version of its argument schema.
    pub fn fingerprint(&self, tool: Tool, schema_version: u32) -> [u8; 32] {
        // Field order of a struct is fixed, so this is one canonical text.
        let text = serde_json::to_string(&(self, tool, schema_version)).expect("a binding has only strings and numbers");
        Sha256::digest(text.as_bytes()).into()
    }
}
