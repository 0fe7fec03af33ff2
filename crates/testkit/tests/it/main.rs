//! The whole server, as a process of its own, on both databases and with a real Chromium.

mod audit;
mod canaries;
mod doors;
mod kills;
mod life;
mod notices;
mod objects;
mod offers;
mod once;
mod operations;
mod oversight;
mod oversize;
mod people;
mod revocation;
mod routes;
mod runs;
mod search;
mod settings;
mod stage;
mod taken_back;
mod tools;

/// The server under test.
const BINARY: &str = env!("CARGO_BIN_EXE_formation-under-test");

/// The name under which the browser knows a test's site.
const HOST: &str = formation_testkit::kill::HOST;

/// A bound, in seconds.
const fn within(seconds: u64) -> std::time::Duration {
    std::time::Duration::from_secs(seconds)
}
