//! Words and rules of Formation, without I/O: ids, owners, capabilities, settings resolution, the life of a call, arguments,
//! observations, destinations.
//!
//! Everything here is pure or passed in (`Clock`, `Entropy`, `Environment`, `Faults`), so that every other crate can depend on it
//! and none of it depends on anything of ours.

mod words;

pub mod address;
pub mod arguments;
pub mod binding;
pub mod call;
pub mod destination;
pub mod entropy;
pub mod environment;
pub mod failure;
pub mod faults;
pub mod hostlist;
pub mod ids;
pub mod limits;
pub mod networks;
pub mod observation;
pub mod people;
pub mod refusal;
pub mod search;
pub mod secret;
pub mod settings;
pub mod time;
pub mod tool;
pub mod view;

pub use binding::{AccountRef, Binding, Scope, VendorId};
pub use call::{Execution, Finding, Outcome, Permit};
pub use entropy::Entropy;
pub use environment::Environment;
pub use faults::Faults;
pub use ids::{
    AccountId, AgentId, ArtifactId, AuditId, BrowserSessionId, CallId, ConversationId, InstanceId, McpSessionId, OfferId,
    OperatorId, RunId, SecretId, TokenId,
};
pub use observation::Observation;
pub use secret::Secret;
pub use time::{Clock, Timestamp};
pub use tool::{Capability, Class, Tool};
