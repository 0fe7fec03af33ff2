//! The whole server, as a process of its own, on both databases and with a real Chromium.

mod kills;
mod life;
mod objects;
mod offers;
mod oversize;
mod routes;
mod runs;
mod stage;

/// The server under test.
const BINARY: &str = env!("CARGO_BIN_EXE_formation-under-test");
