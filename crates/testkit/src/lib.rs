//! Test parts: real databases, a real Chromium, and the real server with another wiring.
//!
//! Nothing of this ships: no crate names it under `[dependencies]`.

pub mod brave;
pub mod canary;
pub mod cutter;
pub mod databases;
pub mod grants;
pub mod http;
pub mod kill;
pub mod load;
pub mod mcp;
pub mod operators;
pub mod processes;
pub mod server;
pub mod site;
pub mod under_test;
