//! People and what they manage: sign-in, operators, agents, tokens, access, the audit trail (contract.md 2).

pub(crate) mod agents;
pub(crate) mod operators;
pub(crate) mod session;
