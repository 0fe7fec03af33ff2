//! MCP over streamable HTTP at `/mcp`: the session-based revisions and the sessionless one of 2026-07-28, side by side.
//!
//! rmcp speaks the protocol and keeps nothing: one handler per request, JSON answers. What lasts is ours ([`gate`]): sessions are rows
//! bound to their token, so any replica serves them after any restart, and a session is the key under which implicit runs follow one
//! another (contract.md 3). Notices of changed grants go out on our own GET stream ([`notices`]) and, in the new revision, on
//! `subscriptions/listen` ([`handler`]).

mod era;
mod gate;
mod handler;
mod inflight;
mod notices;
mod patient;
mod seats;
mod tools;

pub(crate) use gate::{__path_delete, __path_get, __path_post};
pub(crate) use gate::{Gate, delete, get, post};
