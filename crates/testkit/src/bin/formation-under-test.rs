//! The real server and command line with another wiring: the only program that can map names, move the clock, shrink waits or stop
//! at a fault point.
//!
//! `formation-under-test [OPTION…] -- COMMAND…`, where what follows `--` is a command line of `formation`:
//!
//! - `--name HOST:PORT=ADDRESS`: a name that leads to a loopback address.
//! - `--root-ca FILE`: certificates, as PEM, that sign vendors' instead of the built-in roots.
//! - `--fault NAME[:N]`: the Nth pass of that place (the first without it) prints `fault NAME` and stays there for ever.
//! - `--clock-offset-ms N`: the clock is so much ahead, or behind.
//! - `--clock-frozen TIME`: the clock stands at an RFC 3339 time.
//! - `--timing NAME_ms=N,…`: waits, by the names of `formation_testkit::under_test::timing`.
//! - `--env NAME=VALUE`: a variable, beside those of the process.

use std::process::ExitCode;

use formation_testkit::under_test::Options;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match Options::parse(&arguments) {
        Ok(options) => {
            let (wiring, command) = options.wiring();
            formation::run(command.into_iter().map(Into::into), wiring)
        }
        Err(error) => {
            use std::io::Write as _;
            // Nobody is left to tell when standard error is closed.
            drop(writeln!(std::io::stderr(), "error: {error}"));
            ExitCode::from(2)
        }
    }
}
